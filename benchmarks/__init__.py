"""What the limiters and the adapter cost, and that a change does not make it more unseen."""
