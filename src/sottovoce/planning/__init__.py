"""What a run will cost and promise, before anybody trains."""
