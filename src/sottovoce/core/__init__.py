"""Hold what every room may use: errors, validation, flat vectors, the wire format, named randomness."""
