"""Times as ratios to something else in the same process: what a busy machine slows alike."""
