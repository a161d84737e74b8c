"""Wall-clock tables by pytest-benchmark: records of one machine, never a gate."""
