"""Turn an experiment file into a finished run folder."""

from sottovoce.experiment.config import Experiment, load, parse
from sottovoce.experiment.plan import plan
from sottovoce.experiment.run import run
from sottovoce.experiment.sweep import sweep

__all__ = ["Experiment", "load", "parse", "plan", "run", "sweep"]
