"""Simulated devices: which clients leave a round, and when."""

from sottovoce.devices.dropout import Dropout

__all__ = ["Dropout"]
