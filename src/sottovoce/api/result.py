"""What came out of a run: numbers, the model, a picture."""

from __future__ import annotations

import html
import shutil
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.api.arrays import inputs, prepare
from sottovoce.core.errors import InputError
from sottovoce.core.packages import require
from sottovoce.core.vectors import Vector
from sottovoce.data import Preprocessing, as_table
from sottovoce.data.files import read_npz
from sottovoce.report.runs import Run, read_run
from sottovoce.report.units import epsilon, human_bytes

if TYPE_CHECKING:
    from sottovoce.models import Model
    from sottovoce.runs.saved_model import SavedModel


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
        self._others: tuple[Result, ...] = ()  # not this one: a result that held itself would keep its folder
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

    @property
    def seeds(self) -> tuple[Result, ...]:
        """Return the results of all seeds that were played together, this one first."""
        return (self, *self._others)

    def add_seeds(self, others: Sequence[Result]) -> None:
        """Take in the results of the same experiment with other seeds."""
        self._others = (*self._others, *others)

    @property
    def over_seeds(self) -> dict[str, Any]:
        """Return mean, spread, lowest and highest of each metric over all seeds, and what they cost together."""
        from sottovoce.search.seeds import over_seeds

        return over_seeds([each.summary for each in self.seeds])

    def __getitem__(self, key: str) -> Any:
        return self.summary[key]

    def __contains__(self, key: object) -> bool:
        return key in self.summary

    def frame(self) -> Any:
        """Return the rounds as a pandas frame."""
        require("frame()", "pandas")
        import pandas

        return pandas.DataFrame(self.rounds).set_index("round")

    # The model.

    @cached_property
    def saved(self) -> SavedModel:
        """Return the model with what it takes to give it new records; it needs the folder no more."""
        from sottovoce.runs.saved_model import SavedModel, read_inputs

        told = read_inputs(self.folder)
        network = self._network or self._rebuilt(told)
        return SavedModel(network, self._params(network), told)

    def _rebuilt(self, told: dict[str, Any]) -> Model:
        """Return the network that the config names, from what is written down about the records."""
        from sottovoce.config.tables import ModelTable
        from sottovoce.models import NAMES
        from sottovoce.runs.saved_model import rebuilt

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
        names = self.saved.inputs.get("class_names")
        return tuple(names) if names else tuple(range(self.saved.network.classes))

    @property
    def model(self) -> Any:
        """Return the final model: a torch module with its weights if one was given, else arrays by name."""
        filled = getattr(self._network, "filled", None)
        if self._network is not None and filled is not None:
            return filled(self._params(self._network))
        with np.load(self.folder / "model.npz", allow_pickle=False) as tensors:
            return {name: tensors[name] for name in tensors.files}

    def predict(self, x: Any) -> NDArray[Any]:
        """Return the answer to each record: its class as the labels named it, a number, or a row of 0 and 1.

        A frame is treated as the training frame was.
        """
        made = self.saved.predict(self._records(x))
        if made.task.target.kind != "class":
            return made.answers
        classes = np.empty(len(self.classes), object)
        classes[:] = self.classes
        chosen = classes[made.answers]
        return np.array(chosen.tolist())

    def predict_scores(self, x: Any) -> NDArray[np.float64]:
        """Return the probability of each class or answer, one row a record; a number has none."""
        probabilities: NDArray[np.float64] = self.saved.predict(self._records(x)).probabilities
        return probabilities

    def _records(self, x: Any) -> NDArray[Any]:
        table = self.saved.inputs.get("table")
        if hasattr(x, "iloc") or isinstance(x, dict):
            if table is None:
                raise InputError("x is a table, but the model was not trained on one; give an array of records")
            return Preprocessing.of(table).apply(as_table(x, "x"))
        stored, _ = inputs(np.asarray(x), "predict")
        kind = self.saved.inputs.get("input_type", "float32")
        tokens = np.issubdtype(np.dtype(kind), np.integer) and kind != "uint8"
        wanted = self.saved.network.input_shape
        turned = stored.shape[1:] != wanted and stored.ndim == 4
        stored = prepare(stored, tokens=tokens, channels_first=turned, named=stored.shape[1:] != wanted)
        return stored.astype(kind) if tokens else stored

    # Pictures, and files.

    def plot(self) -> Any:
        """Return a plotly figure: accuracy over rounds."""
        from sottovoce.report.figures import by_round

        return by_round([self._run])

    def export(self, path: Path | str, to: str | None = None, *, features: bool = False) -> Path:
        """Write the final model for other programs: torch, onnx or npz, as `sottovoce export` does.

        Without `to` the end of the path says the form: .pt2, .onnx or .npz. ONNX of a table has one input a column,
        or with `features` the features that were made of them.
        """
        from sottovoce.models.export import SUFFIX

        target = Path(path)
        form = to or {suffix: name for name, suffix in SUFFIX.items()}.get(target.suffix)
        if form is None:
            ends = ", ".join(f"{suffix} ({name})" for name, suffix in SUFFIX.items())
            raise InputError(f"the path of an export must end in one of {ends}, or to= say the form, got {str(path)!r}")
        self.saved.export(target, form, features=features)
        return target

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
        if len(self.seeds) > 1:
            facts |= self._seed_facts(lead)
        if told.get("verdict"):
            facts["verdict"] = str(told["verdict"])
        if told["private"]:
            facts["epsilon"] = _epsilons(told)
        else:
            facts["epsilon"] = "infinite: not private"
        up, down = told["bytes_up_per_client_round"], told["bytes_down_per_client_round"]
        if up is not None and down is not None:
            facts["bytes"] = f"{human_bytes(up)} up, {human_bytes(down)} down, a client and round"
        facts["folder"] = str(self.folder) + (" (temporary)" if self._own is not None else "")
        return facts

    def _seed_facts(self, lead: str) -> dict[str, str]:
        told = self.over_seeds
        spread, together = told["metrics"].get(f"{lead}_final"), told["together"]
        facts = {"seeds": f"{len(self.seeds)}, of which this is the first"}
        if spread is not None:
            facts["seeds"] += f"; {lead.replace('_', ' ')} {spread['mean']:.4f} ± {spread['spread']:.4f}"
        if together is not None:
            known = f"{epsilon(together['epsilon'])}, {epsilon(together['epsilon_server'])} against the server"
            facts["together"] = f"epsilon {known}, delta {together['delta']:.3g}: every seed was charged"
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
