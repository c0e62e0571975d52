"""The statistics of a privacy audit: lower bounds on epsilon from games, and tests of released noise against its plan.

Nothing here plays a game: `studies.audit` does, and hands counts and sums to these functions.
"""
