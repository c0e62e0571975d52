"""Describe devices: who leaves when; links and energy come with their profiles."""

from sottovoce.devices.dropout import Dropout

__all__ = ["Dropout"]
