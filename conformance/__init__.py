"""Prove a limiter or a scheduler, at three levels; importing this never imports vLLM."""
