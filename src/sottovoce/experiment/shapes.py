"""Gather the parts of an experiment for a plan: sizes follow from shapes; records are read only where they matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sottovoce.core.errors import DataError
from sottovoce.data import Dataset, outline
from sottovoce.experiment.config import Experiment
from sottovoce.experiment.elsewhere import gather_without_records
from sottovoce.experiment.given import Given
from sottovoce.experiment.parts import Parts, gather
from sottovoce.experiment.public import is_clients

__all__ = ["PROJECTION_SAMPLE", "gather_shapes"]

PROJECTION_SAMPLE: Final = 500  # public records that a projection's size is estimated with; up to 3 % off in bytes
_DEALT: Final = ("iid", "virtual")  # partitions whose sizes do not depend on anybody's label or owner


def gather_shapes(experiment: Experiment) -> tuple[Parts, list[str]]:
    """Return the parts of an experiment with records that only have a shape, and what is only estimated then.

    Where the sizes of the clients depend on labels or owners, or an attack reads the records, the data set is read as a
    run would; if it is not on the machine, an image or text set is taken with as many records of each class.
    """
    if experiment.data.shape is not None:  # nobody but nodes has records
        return gather_without_records(experiment), []
    if experiment.engine.data is not None:  # what is in common has all that matters
        return gather(experiment), []
    estimated: list[str] = []
    known = outline(experiment.data.source, experiment.data.folder)
    matters = experiment.data.partition not in _DEALT or experiment.client.balanced or experiment.threat is not None
    small = _small_projection(experiment)
    if small is not experiment:
        estimated += ["bytes_setup_per_client", "projection.bytes"]
    given = Given(dataset=known, public=None if known is None else _public(experiment, known))
    if known is None or matters:
        try:
            parts = gather(small, Given(public=given.public))
        except DataError:
            if known is None or experiment.data.partition in ("by-id", "hospitals"):
                raise
            parts = gather(small, given)
            estimated.append("records_per_client")
    else:
        parts = gather(small, given)
    return replace(parts, experiment=experiment), estimated


def _public(experiment: Experiment, dataset: Dataset) -> Dataset | None:
    """Return a stand-in for public records of another set; None: there are none, or a run's checks must see them."""
    name = experiment.scheme.public
    if name is None or is_clients(name, experiment):
        return None
    known = outline(name, experiment.data.folder)
    fits = known is not None and known.shape == dataset.shape and known.classes <= dataset.classes
    return known if fits else None


def _small_projection(experiment: Experiment) -> Experiment:
    """Return the experiment with a projection that fewer public records fit, where there is one to fit."""
    model = experiment.model
    fitted = model.front in ("scattering", "gabor") or (":" in model.front and model.projection.dims is not None)
    if not fitted or model.projection.samples <= PROJECTION_SAMPLE:
        return experiment
    projection = model.projection.model_copy(update={"samples": PROJECTION_SAMPLE})
    return experiment.model_copy(update={"model": model.model_copy(update={"projection": projection})})
