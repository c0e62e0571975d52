"""The experiment file: one module a table, with its keys and its checks."""
