"""Level 1: the limiter alone."""
