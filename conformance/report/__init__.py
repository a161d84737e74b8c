"""The result of a run: as text in the terminal, and as a page."""
