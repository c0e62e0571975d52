"""Many runs: sweeps, tuning, and the runner that they share."""
