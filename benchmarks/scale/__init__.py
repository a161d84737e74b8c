"""What a step costs at the size of a large service, over simulated time."""
