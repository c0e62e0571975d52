"""One file for each way in which a guarantee was broken at its edges, named after what fell."""
