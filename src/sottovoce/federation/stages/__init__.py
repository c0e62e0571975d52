"""Conversations beside the rounds of training: vote, warm start, statistics, measurements."""
