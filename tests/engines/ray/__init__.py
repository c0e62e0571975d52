"""Tests of the engine on a Ray cluster."""
