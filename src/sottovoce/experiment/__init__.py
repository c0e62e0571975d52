"""Turn an experiment file into a finished run folder; `sottovoce` itself has the public names."""
