"""What every other package may use: errors, validation, flat vectors, the wire format, named randomness."""
