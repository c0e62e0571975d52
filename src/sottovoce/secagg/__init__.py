"""secagg."""
