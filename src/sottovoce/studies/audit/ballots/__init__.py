"""The audit of secret ballots: outsiders, the leader and the helper, each against the noise that it cannot know."""
