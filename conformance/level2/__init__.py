"""Level 2: the rules that a scheduler keeps, on the real vLLM scheduler with a scripted model."""
