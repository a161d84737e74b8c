"""Absolute figures, one JSON file a release with its machine and commit: recorded, never gated."""
