"""A whole federation on one machine, for a trial."""
