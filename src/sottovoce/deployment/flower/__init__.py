"""The federation's round on a Flower fleet."""
