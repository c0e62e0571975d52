"""The privacy plan: everything that a private run needs, solved together and sealed."""
