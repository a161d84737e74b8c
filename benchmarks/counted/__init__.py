"""Costs that are counted, not timed, compared with what is committed beside this file."""
