"""A real vLLM server to test against: the tiny model, the launcher, the depth-2 switch for CPU."""
