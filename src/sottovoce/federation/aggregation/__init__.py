"""What a round's sum is made of: one module a protocol, with what it collects and what it costs."""
