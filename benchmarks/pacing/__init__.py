"""How exactly and how evenly each backend paces its users on the real scheduler."""
