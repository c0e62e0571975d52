"""The command line: data to stdout, progress and messages to stderr, one file a command."""

from sottovoce.cli.app import main

__all__ = ["main"]
