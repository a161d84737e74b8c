"""Throughput of the real engine with limits that are not reached, beside stock vLLM."""
