"""Engines: who carries the messages of a round."""
