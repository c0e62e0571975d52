"""Engines with packages of their own are tested where these are installed: `make test-engines`."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [name for name, package in (("ray", "ray"), ("flower", "flwr")) if find_spec(package) is None]
