"""Break the guarantee on purpose, one way at a time, and see that a test fails: `python -m tests.mutants`."""
