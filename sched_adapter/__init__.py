"""Limits on each user's output pace, applied inside the scheduler of a stock vLLM.

This is the only package that knows vLLM's inside. Importing it imports neither vLLM nor torch;
the modules that need them are `scheduler`, `engine` and what `plugin` sets up.
"""
