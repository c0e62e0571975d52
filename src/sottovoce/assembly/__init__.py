"""Put an experiment together: its parts, its protection, its stages and its parties."""
