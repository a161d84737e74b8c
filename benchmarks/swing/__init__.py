"""Does the batch swing? The real scheduler, a manual clock, many users out of quota at a time."""
