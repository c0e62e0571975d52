"""Play an experiment to its summary: the loop, the journal, the run folder."""
