"""Describe devices: links, energy, availability."""
