"""Proof on a real engine, over HTTP: it knows an endpoint, how to launch one, and the record."""
