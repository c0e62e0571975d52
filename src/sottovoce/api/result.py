"""What came out of a run: numbers, the model, a picture."""

from __future__ import annotations

import html
import shutil
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.api.arrays import inputs, prepare
from sottovoce.core.errors import InputError
from sottovoce.core.vectors import Vector
from sottovoce.data import Preprocessing, as_table
from sottovoce.data.files import read_npz
from sottovoce.report.runs import Run, read_run
from sottovoce.report.units import epsilon, human_bytes

if TYPE_CHECKING:
    from sottovoce.experiment.saved import SavedModel
    from sottovoce.models import Model

__all__ = ["Result"]


class Result:
    """A finished run: `result["accuracy_final"]` is short for `result.summary["accuracy_final"]`.

    It reads a run folder. A folder that no one named is temporary and goes when the result does; `save` keeps it.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        network: Model | None = None,
        classes: tuple[Any, ...] | None = None,
        own: Path | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._network = network
        self._classes = classes
        self._own = own
        if own is not None:
            weakref.finalize(self, shutil.rmtree, own, ignore_errors=True)
        if self._run.summary is None:
            raise InputError(
                f"{self.folder} is not finished: it has no summary.json; go on with `sottovoce run --resume`"
            )

    # Numbers.

    @cached_property
    def _run(self) -> Run:
        return read_run(self.folder)

    @property
    def summary(self) -> dict[str, Any]:
        """Return what `summary.json` holds."""
        return self._run.summary or {}

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Return one dict a round."""
        return self._run.rounds

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """Return the resolved experiment, table by table."""
        return self._run.tables

    def __getitem__(self, key: str) -> Any:
        return self.summary[key]

    def __contains__(self, key: object) -> bool:
        return key in self.summary

    def frame(self) -> Any:
        """Return the rounds as a pandas frame."""
        try:
            import pandas
        except ImportError:
            raise InputError("frame() needs pandas; install it, or use .rounds, a list of dicts") from None
        return pandas.DataFrame(self.rounds).set_index("round")

    # The model.

    @cached_property
    def _saved(self) -> SavedModel:
        from sottovoce.experiment.saved import SavedModel, read_inputs

        told = read_inputs(self.folder)
        network = self._network or self._rebuilt(told)
        return SavedModel(network, self._params(network), told)

    def _rebuilt(self, told: dict[str, Any]) -> Model:
        """Return the network that the config names, from what is written down about the records."""
        from sottovoce.experiment.saved import rebuilt
        from sottovoce.experiment.tables import ModelTable
        from sottovoce.models import NAMES

        model = self.config["model"]
        if model["name"] not in NAMES:
            raise InputError(
                f"{self.folder} has the weights of a {model['name']}, not its code; read it with "
                "sottovoce.result(folder, model=...) and a model of the same class"
            )
        return rebuilt(self.folder, ModelTable.model_validate(model), told)

    def _params(self, network: Model) -> Vector:
        tensors = read_npz(self.folder / "model.npz", [name for name, _ in network.layout.tensors])
        return network.layout.join(tensors)

    @property
    def classes(self) -> tuple[Any, ...]:
        """Return the classes as the labels named them, in the order of the columns of `predict_scores`."""
        if self._classes is not None:
            return self._classes
        names = self._saved.inputs.get("class_names")
        return tuple(names) if names else tuple(range(self._saved.network.classes))

    @property
    def model(self) -> Any:
        """Return the final model: a torch module with its weights if one was given, else arrays by name."""
        filled = getattr(self._network, "filled", None)
        if self._network is not None and filled is not None:
            return filled(self._params(self._network))
        with np.load(self.folder / "model.npz", allow_pickle=False) as tensors:
            return {name: tensors[name] for name in tensors.files}

    def predict(self, x: Any) -> NDArray[Any]:
        """Return the class of each record, as the labels named it; a frame is treated as the training frame was."""
        classes = np.empty(len(self.classes), object)
        classes[:] = self.classes
        chosen = classes[self.predict_scores(x).argmax(1)]
        return np.array(chosen.tolist())

    def predict_scores(self, x: Any) -> NDArray[np.float64]:
        """Return the probability of each class, one row a record."""
        probabilities: NDArray[np.float64] = self._saved.predict(self._records(x)).probabilities
        return probabilities

    def _records(self, x: Any) -> NDArray[Any]:
        table = self._saved.inputs.get("table")
        if hasattr(x, "iloc") or isinstance(x, dict):
            if table is None:
                raise InputError("x is a table, but the model was not trained on one; give an array of records")
            return Preprocessing.of(table).apply(as_table(x, "x"))
        stored, _ = inputs(np.asarray(x), "predict")
        kind = self._saved.inputs.get("input_type", "float32")
        tokens = np.issubdtype(np.dtype(kind), np.integer) and kind != "uint8"
        wanted = self._saved.network.input_shape
        turned = stored.shape[1:] != wanted and stored.ndim == 4
        stored = prepare(stored, tokens=tokens, channels_first=turned, named=stored.shape[1:] != wanted)
        return stored.astype(kind) if tokens else stored

    # Pictures, and files.

    def plot(self) -> Any:
        """Return a plotly figure: accuracy over rounds."""
        from sottovoce.report.figures import by_round

        return by_round([self._run])

    def save(self, path: Path | str) -> Path:
        """Copy the run folder; `sottovoce.result(path)` and `sottovoce report` read it."""
        target = Path(path)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(f"{target} exists already; choose another path")
        try:
            shutil.copytree(self.folder, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
        except OSError as error:
            raise InputError(f"{target} cannot be written: {error.strerror or error}") from None
        return target

    def __repr__(self) -> str:
        return "\n".join(f"{name:<9} {value}" for name, value in self._facts().items())

    def _repr_html_(self) -> str:
        cells = (
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<table>{''.join(cells)}</table>{_line(self.rounds, self._run.lead)}"

    def _facts(self) -> dict[str, str]:
        told, lead = self.summary, self._run.lead
        facts = {"scheme": f"{told['scheme']}, {told['rounds']} rounds, {told['clients']} clients"}
        if told.get(f"{lead}_final") is not None:
            best = f"best {told[f'{lead}_best']:.4f} in round {told['best_round']}"
            facts[lead.replace("_", " ").removesuffix(" accuracy") if len(lead) > 9 else lead] = (
                f"{told[f'{lead}_final']:.4f} ({best})"
            )
        if told["private"]:
            facts["epsilon"] = _epsilons(told)
        else:
            facts["epsilon"] = "infinite: not private"
        up, down = told["bytes_up_per_client_round"], told["bytes_down_per_client_round"]
        if up is not None and down is not None:
            facts["bytes"] = f"{human_bytes(up)} up, {human_bytes(down)} down, a client and round"
        facts["folder"] = str(self.folder) + (" (temporary)" if self._own is not None else "")
        return facts


def _epsilons(told: dict[str, Any]) -> str:
    """Return both epsilons in words; between machines the one against outsiders may be missing, for a reason."""
    others, server = told["epsilon"], told["epsilon_server"]
    spent = told.get("epsilon_spent")
    known = [] if others is None else [epsilon(others) + (" against outsiders" if told.get("deployed") else "")]
    known += [] if server is None else [f"{epsilon(server)} against the server"]
    if told.get("deployed"):  # the one that counts on no secret draw comes first
        known.reverse()
    why = "" if others is not None else f" ({told.get('epsilon_reason') or 'unknown'} against outsiders)"
    if others is not None and spent is not None and spent < others:
        why = f"; {epsilon(spent)} was spent, which is a reading and no guarantee"
    return f"{', '.join(known) or 'no bound'}, delta {told['delta']:g}{why}"


def _line(rounds: list[dict[str, Any]], metric: str) -> str:
    """Draw the metric over rounds as a small picture that needs no script and no network."""
    points = [(record["round"], record[metric]) for record in rounds if record.get(metric) is not None]
    if len(points) < 2:
        return ""
    last = points[-1][0]
    path = " ".join(f"{300 * round_ / last:.1f},{60 - 60 * value:.1f}" for round_, value in points)
    return (
        "<svg width='310' height='66' viewBox='-2 -3 310 66' role='img'>"
        f"<title>{metric} over rounds, from 0 to 1</title>"
        "<path d='M0,0V60H300' fill='none' stroke='#808080'/>"
        f"<polyline points='{path}' fill='none' stroke='#0072B2' stroke-width='2'/></svg>"
    )
