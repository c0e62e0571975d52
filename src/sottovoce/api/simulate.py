"""Simulate a federation with data, a model and a scheme that are given as objects or by name."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np

from sottovoce.api import data as data_reader
from sottovoce.api import model as model_reader
from sottovoce.api import scheme as scheme_reader
from sottovoce.api.callbacks import adapted, watched
from sottovoce.api.privacy import Privacy, filled, measure
from sottovoce.api.result import Result
from sottovoce.assembly.overrides import Given
from sottovoce.assembly.public import is_clients
from sottovoce.config import tables
from sottovoce.config.experiment import Experiment, parse
from sottovoce.config.privacy import head_defaults
from sottovoce.core.errors import InputError
from sottovoce.core.validate import nearest, one_of
from sottovoce.data import Aside
from sottovoce.federation.aggregation.protocols import PROTOCOLS
from sottovoce.models import TaskKeys
from sottovoce.models.task import LABELS, TASKS, USUAL
from sottovoce.runs.loop import run
from sottovoce.schemes import Scheme
from sottovoce.search.seeds import check_seeds

_TABLES: Final[dict[str, type[tables.Table]]] = {
    "experiment": tables.GeneralTable,
    "data": tables.DataTable,
    "model": tables.ModelTable,
    "client": tables.ClientTable,
    "cohort": tables.CohortTable,
    "aggregation": tables.AggregationTable,
    "devices": tables.DevicesTable,
    "engine": tables.EngineTable,
}
# Told by `data`, `model`, or one of several tables that have a key of this name: the first is meant.
_NOT_KEYS: Final = ("source",)
_USUAL_DIM: Final = 4000  # of a model behind a front, to try a scheme on


def simulate(
    data: Any,
    model: Any = "mlp",
    scheme: str | tuple[str, dict[str, Any]] | Scheme = "fl-std",
    privacy: Privacy | Mapping[str, Any] | None = None,
    *,
    clients: int | None = None,
    rounds: int | None = None,
    sample_rate: float | str | Fraction | None = None,
    partition: str | None = None,
    local_steps: int | None = None,
    batch_size: int | str | None = None,
    client_lr: float | None = None,
    optimizer: str | None = None,
    evaluate_every: int | None = None,
    seed: int = 1,
    seeds: int | None = None,
    secure: str | None = None,
    workers: int | None = None,
    engine: str | None = None,
    server: Mapping[str, Any] | None = None,
    threat: Mapping[str, Any] | None = None,
    scheme_keys: dict[str, Any] | None = None,
    task: str | None = None,
    loss: str | Callable[..., Any] | None = None,
    metrics: Sequence[str | Callable[..., Any]] = (),
    test: Any = None,
    label: str | Sequence[str] | None = None,
    id: Any = None,
    person: Any = None,
    split: str | None = None,
    subgroup: str | None = None,
    schema: Any = None,
    classes: Sequence[Any] | int | None = None,
    callbacks: Any = (),
    out: Path | str | None = None,
    resume: bool = False,
    verbose: bool | None = None,
    **keys: Any,
) -> Result:
    """Train a model on the records of simulated clients, and return what came out.

    data        a name or a file ("digits", "patients.csv"), arrays (x, y) or (x, y, x_test, y_test), a pandas frame
                with `label="column"`, a torch Dataset, or a list with an (x, y) pair, a Dataset, a frame
                or a file for each client (also a pattern, "hospital_*.csv").
                Without test records (`test=(x_test, y_test)`) a fifth is set aside; `test_data` in the summary says so.
                A private run cuts no test records from its clients: they measure the model themselves, with noise.
    model       a name ("mlp", "cnn", "logistic"), a `Network`, or any torch module without BatchNorm
    scheme      a name, a name and its keys (`("fl-top", {"ratio": 0.01})`), or a scheme object, also of your own class
    privacy     `sv.Privacy(epsilon=1)` with the keys of `[privacy]`; without it the run is not private
    threat      malicious clients, with the keys of `[threat]`: `{"attack": "sign-inversion", "fraction": 0.1}`
    engine      what plays the clients, the `name` of `[engine]`: "ray" for a cluster, with `address`
    id          the column, or the array, that says who owns each record, for `partition="by-id"`
    person      the column, or the array, that says whom each record is about, for `sv.Privacy(unit="person")`
    subgroup    the column of a table by whose values the final model is judged, such as the sex
    classes     the labels in order, or how many there are if they are 0, 1, ...; a private run on arrays needs them,
                because what is taken from the clients' labels is published with the model
    seeds       play so many seeds, from `seed` on, each charged in full; the result is the first seed's, `Result.seeds`
                has all of them, and `Result.over_seeds` mean and spread. With `out`, a folder `seed-N` for each
    task        what is learnt: "classification", "regression", "multilabel" or "ordinal" (docs/tasks.md); for
                regression in a private run `label_range=(low, high)` says which labels are possible
    loss        "squared", "absolute" or "huber" for regression, or a function of yours: any torch function of outputs
                and targets that returns one number
    metrics     your own: functions of answers and labels, or "module:function", that return a number; answers are
                probabilities (records, classes), or the values of a regression
    callbacks   functions that are called with the record of each round (and the state, if they take two arguments), or
                objects with `on_start(config)`, `on_round(record, state)`, `on_end(summary)`; to end the run, raise
                `sv.Stop` in one
    verbose     show a line of progress; None: on a terminal and in a notebook, if it takes longer than two seconds
    out         the run folder to write; without it a temporary one, which `Result.save` copies

    The other arguments are keys of an experiment file, with the same meaning and defaults: `sottovoce explain` lists
    them. Keys that are not in the signature (`momentum`, `sampling`, `hidden`, ...) can be given too.

    Guarantee: a private run keeps its promise as one from an experiment file does; nothing is written before all parts
    have been checked.
    """
    if seeds is not None:
        return _repeated(seeds, seed, out, {**_arguments(locals()), **keys})
    keys |= {
        "clients": clients,
        "rounds": rounds,
        "sample_rate": sample_rate,
        "partition": partition,
        "local_steps": local_steps,
        "batch_size": batch_size,
        "client_lr": client_lr,
        "optimizer": optimizer,
        "evaluate_every": evaluate_every,
        "seed": seed,
        "secure": secure,
        "workers": workers,
        "task": task,
        "loss": loss if isinstance(loss, str) else None,
        "metrics": [each for each in _listed(metrics) if isinstance(each, str)] or None,
    }
    asked = _by_table({key: _plain(value) for key, value in keys.items() if value is not None})
    if engine is not None:
        asked.setdefault("engine", {})["name"] = engine
    ready = watched(adapted(callbacks), verbose)
    chosen, scheme_table = scheme_reader.read(scheme, scheme_keys)
    place = asked.get("data", {}).get("folder")
    model_keys = asked.get("model", {})
    learns = _task_keys(model_keys, loss)
    columns = data_reader.Columns(
        label=label,
        id=id,
        person=person,
        split=split,
        subgroup=subgroup,
        schema=schema,
        classes=classes,
        kind=LABELS[learns.task],
        label_range=_range(asked.get("data", {})),
    )
    reader = model_reader.reader_of(model, model_keys.get("front", "none"))
    private = None
    if privacy is not None:
        private = privacy if isinstance(privacy, tables.PrivacyTable) else Privacy(**privacy)
    unmeasured = asked.get("experiment", {}).get("evaluation") == "none"
    aside = _aside(private, asked.get("data", {}), unmeasured=unmeasured)
    loaded = data_reader.read(data, reader, test=test, columns=columns, seed=seed, folder=place, aside=aside)
    records, network = loaded.dataset, None
    if model_keys.get("front", "none") == "none":  # else the run makes it, and its folder keeps what it takes
        told = ("front", "projection", "task", "loss", "class_weights", "metrics")
        network = model_reader.make(
            model,
            records.shape,
            records.classes,
            input_scale=records.input_scale,
            task=learns,
            target=records.target,
            **{key: value for key, value in model_keys.items() if key not in told},
        )
    elif callable(loss):
        raise InputError("a loss of your own behind a front is named as loss='module:function'")
    scheme_reader.check(chosen, _USUAL_DIM if network is None else network.dim)
    asked["data"] = _data_table(loaded, asked.get("data", {}))
    asked["model"] = {"name": model if isinstance(model, str) or network is None else network.name, **model_keys}
    asked["scheme"] = scheme_table
    for name, table in (("server", server), ("threat", threat)):
        if table is not None:
            asked[name] = {key: _plain(value) for key, value in table.items()}
    if private is not None:
        heads = head_defaults({**asked, "privacy": private.model_dump(exclude_unset=True)})
        private = private.model_copy(update=heads.pop("privacy", {}))
        rate = heads.pop("server", {})  # which only a private run has
        asked |= {name: {**keys, **asked.get(name, {})} for name, keys in heads.items()}
        # Checked without privacy first, and so without ballots: what is filled in depends on the other tables.
        others = {**asked, "aggregation": dict(asked.get("aggregation", {}))}
        secure = others["aggregation"].get("secure", "none")
        ballots = secure in PROTOCOLS and PROTOCOLS[secure].counts_votes
        for key in ("secure", "ballot", "helper") if ballots else ():
            others["aggregation"].pop(key, None)
        experiment = parse(others, where="simulate")
        asked["privacy"] = filled(private, chosen, experiment, ballots=ballots)
        if loaded.untested and "evaluation" not in asked.get("experiment", {}):
            measure(asked, private, experiment, ballots=ballots)
        if rate:
            asked["server"] = {**rate, **asked.get("server", {})}
    experiment = parse(asked, where="simulate")
    given = Given(
        dataset=records if loaded.given else None,
        partition=loaded.partition if _whole(experiment, chosen) else None,
        network=None if isinstance(model, str) and not callable(loss) else network,
        scheme=chosen if isinstance(scheme, Scheme) else None,
        metrics=tuple(each for each in metrics if not isinstance(each, str)) or None,
    )
    own = Path(tempfile.mkdtemp(prefix="sottovoce-")) if out is None else None
    folder = Path(out or "") if own is None else own / experiment.experiment.name
    try:
        run(experiment, folder, resume=resume, callbacks=ready, given=given)
    except BaseException:
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)
        raise
    return Result(folder, network=network, classes=loaded.classes, own=own)


def _listed(metrics: Any) -> Sequence[Any]:
    """Return metrics as they are; raise if they are no list."""
    if isinstance(metrics, str) or not isinstance(metrics, Sequence):
        raise InputError(f"metrics= must be a list of functions or of module:function, got {type(metrics).__name__}")
    return metrics


def _task_keys(keys: Mapping[str, Any], loss: str | Callable[..., Any] | None) -> TaskKeys:
    """Return what the arguments say about what is learnt."""
    weights = keys.get("class_weights")
    one_of("task", keys.get("task", USUAL.task), TASKS)
    if loss is not None and not isinstance(loss, str) and not callable(loss):
        raise InputError(f"loss= must be a name or a function of outputs and targets, got {type(loss).__name__}")
    return TaskKeys(
        keys.get("task", USUAL.task), USUAL.loss if loss is None else loss, None if weights is None else tuple(weights)
    )


def _range(keys: dict[str, Any]) -> tuple[float, float] | None:
    """Return the range of labels that are numbers, and leave it among the keys as a file has it."""
    given = keys.get("label_range")
    if given is None:
        return None
    try:
        low, high = map(float, given)
    except (TypeError, ValueError):
        raise InputError(f"label_range= must be the lowest and the highest label, got {given!r}") from None
    keys["label_range"] = [low, high]
    return low, high


def _arguments(frame: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of `simulate` but those that tell the seeds apart."""
    return {name: value for name, value in frame.items() if name not in ("keys", "seed", "seeds", "out")}


def _repeated(count: int, first: int, out: Path | str | None, arguments: dict[str, Any]) -> Result:
    """Play a simulation with several seeds, and return the first result, which knows the others."""
    check_seeds(count)

    def play(seed: int) -> Result:
        return simulate(**arguments, seed=seed, out=None if out is None else Path(out) / f"seed-{seed}")

    result = play(first)
    result.add_seeds([play(seed) for seed in range(first + 1, first + count)])
    return result


def _aside(private: tables.PrivacyTable | None, asked: Mapping[str, Any], *, unmeasured: bool) -> Aside:
    """Return what is cut for tests from records without any: nothing where nobody measures, or the run is private."""
    if unmeasured:
        return "nothing"
    if asked.get("test_public"):
        return "owners"
    return "fifth" if private is None or private.unsafe_test else "nothing"


def _by_table(keys: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Put each key into the table of an experiment file that has it."""
    asked: dict[str, dict[str, Any]] = {}
    known = {
        key: name for name, table in reversed(_TABLES.items()) for key in table.model_fields if key not in _NOT_KEYS
    }
    for key, value in keys.items():
        if key not in known:
            guess = nearest(key, known)
            raise InputError(
                f"simulate has no argument {key!r}; " + (f"did you mean {guess!r}?" if guess else "see its help")
            )
        asked.setdefault(known[key], {})[key] = value
    return asked


def _data_table(loaded: data_reader.Loaded, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the table of `[data]`; as many clients as are listed or own records, else 100, or one a record."""
    if loaded.partition is not None:
        if asked.get("clients", loaded.partition.clients) != loaded.partition.clients:
            listed = loaded.partition.clients
            raise InputError(f"clients is {asked['clients']}, but data lists {listed} of them; leave it out")
        if "partition" in asked:
            raise InputError("the list in data says who owns which records; leave partition out")
    if loaded.sites > 1 and asked.get("partition", "by-id") == "by-id":
        return {"clients": loaded.sites, "partition": "by-id", **asked, **loaded.tables}
    usual = min(tables.DataTable().clients, loaded.dataset.records)
    if asked.get("partition") == "by-id" and loaded.dataset.ids is not None:
        usual = len(np.unique(loaded.dataset.ids))
    return {"clients": usual, **asked, **loaded.tables}


def _whole(experiment: Experiment, scheme: Scheme) -> bool:
    """Tell whether all train records stay with their clients: nothing is set aside as public or held-out data."""
    private = experiment.privacy
    voted = private is not None and private.vote_noise_multiplier is not None
    slices = (scheme.needs_importance and not voted) or (private is not None and private.clipping == "public")
    own = experiment.scheme.public is None or is_clients(experiment.scheme.public, experiment)
    return not experiment.data.held_out and not (slices and own)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
