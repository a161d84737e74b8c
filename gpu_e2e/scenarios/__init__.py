"""The scenarios: `pytest gpu_e2e/scenarios --device cpu`."""
