"""The helper of a federation, which counts ballots with the training server."""
