"""Engines around an engine: clients that leave, devices that are slow, clients that cheat."""
