"""Minutes of everything at once on one real server, on demand: `pytest gpu_e2e/soak`."""
