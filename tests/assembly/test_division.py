"""Records divided among machines: the bits of undivided ones, what is refused, and what nobody needs to read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.assembly.division import divide
from sottovoce.assembly.overrides import Given
from sottovoce.assembly.parts import Parts, gather
from sottovoce.checks.twin import few, play, same
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import DataError, InputError, PrivacyError, RunError
from sottovoce.data import sources
from sottovoce.data.machine_parts import Away, Held
from sottovoce.data.placeholder import Elsewhere
from sottovoce.federation.engines.local import LocalEngine
from sottovoce.federation.engines.placement import Found, Holding, check_found, find_parts, place_workers
from sottovoce.federation.engines.process import Call, Outcome, perform, read_outcome
from sottovoce.federation.engines.worker import Worker
from sottovoce.federation.engines.workers import Workers
from sottovoce.planning.plan import plan
from sottovoce.studies.setting import prepare

PRIVATE = {"noise_multiplier": 1.0, "delta": 1e-3, "accountant": "rdp", "clip_norm": 0.5}


class Machines(Workers):
    """Workers of this process, each with some parts of the records and no others."""

    def __init__(self, parts: Parts, held: list[Collection[int]]) -> None:
        away = parts.partition
        assert isinstance(away, Away)
        arrays, here = parts.arrays(), Held.open(away.folder, away.parts)
        self._records = {split[2:]: len(array) for split, array in arrays.items() if split.startswith("x_")}
        blueprint = replace(parts.blueprint(), partition=Elsewhere(away.clients))
        self._workers = [
            Worker(blueprint, arrays, Held({number: here.parts[number] for number in some}, here.of)) for some in held
        ]
        everyone = range(len(held))
        self._held = Holding(
            tuple(tuple(worker for worker in everyone if part in held[worker]) for part in range(here.of))
        )
        self._outcomes: dict[int, Iterator[Outcome]] = {}

    @property
    def count(self) -> int:
        return len(self._workers)

    def close(self) -> None:
        """Nothing was started."""

    def _begin(self, worker: int, call: Call) -> None:
        self._outcomes[worker] = perform(self._workers[worker], call)

    def _ready(self, busy: list[int]) -> list[int]:
        return busy

    def _receive(self, worker: int) -> tuple[bool, Any]:
        return read_outcome(next(self._outcomes[worker]))


def divided(experiment: Experiment, folder: Path, parts: int = 3) -> Experiment:
    """Return the experiment on divided records."""
    divide(experiment, parts, folder)
    return _on(experiment, folder)


def _on(experiment: Experiment, folder: Path) -> Experiment:
    table = experiment.engine.model_copy(update={"name": "ray", "data": str(folder)})
    return experiment.model_copy(update={"engine": table})


EACH = [[0], [1], [2]]
KINDS: dict[str, tuple[Experiment, list[Collection[int]]]] = {
    "one part each": (few(), EACH),
    "several parts, and one part on several machines": (few(), [[0, 1], [1], [1, 2], [2]]),
    "private, real": (few(aggregation={"secure": "real"}, privacy=PRIVATE), [[0, 1], [1, 2], [2]]),
    "keys for a session": (few(aggregation={"secure": "real", "key_life": "session"}), [[0], [0], [1, 2]]),
    "weighted clients": (few(data={"partition": "dirichlet"}, aggregation={"weighting": "records"}), EACH),
    "clients with a replica": (few("sign-sgd", devices={"leave": [[1, 3, "mask"]]}), EACH),
    "a slice of the records": (few("fl-top", data={"held_out": 0.1}), EACH),
    "balanced": (few(data={"partition": "dirichlet"}, client={"balanced": "over-sampling"}), EACH),
    "a front": (few(model={"front": "scattering", "projection": {"dims": 20, "samples": 200}}), EACH),
    "augmented": (few(data={"augment": 2}), EACH),
    "virtual clients": (few(clients=100, data={"partition": "virtual", "pools": 6}), EACH),
}


@pytest.mark.parametrize("kind", KINDS)
def test_divided_records_make_the_bits_of_undivided_ones(tmp_path: Path, kind: str) -> None:
    experiment, held = KINDS[kind]

    there = play(divided(experiment, tmp_path / "parts"), rounds=3, engine=lambda parts: Machines(parts, held))
    here = play(experiment, rounds=3)

    assert same(there, here)
    assert there.story == here.story
    assert np.any(there.models[0] != there.models[1])


def test_what_is_measured_on_single_clients_is_measured_where_they_are(tmp_path: Path) -> None:
    experiment = few(client={"held_out": 0.2, "personal_steps": 1})
    apart, whole = gather(divided(experiment, tmp_path / "parts")), gather(experiment)
    clients, scheme = [8, 0, 4, 1, 5, 7], whole.scheme.bind(whole.network.dim, seed=1, start=whole.start)
    asked: list[Callable[[Workers], list[float]]] = [
        lambda engine: engine.client_accuracies(whole.start, clients),
        lambda engine: engine.client_accuracies(whole.start, clients, 2),
        lambda engine: engine.client_norms(scheme, whole.start, clients, [3]),
        lambda engine: engine.client_norms(scheme, whole.start, clients, [3, 4, 5, 6, 7, 8, 9]),
    ]

    with LocalEngine(whole.blueprint(), whole.arrays(), 1) as local:
        expected = [ask(local) for ask in asked]
    found = [ask(Machines(apart, [[0, 1], [2]])) for ask in asked]

    assert found == expected


def test_who_leads_reads_no_train_record_and_plans_as_with_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = few(data={"partition": "dirichlet"}, devices={"profile": "phone-lte"})
    apart = divided(experiment, tmp_path / "parts")
    expected = plan(experiment)
    for part in range(3):
        shutil.rmtree(tmp_path / "parts" / f"part-{part}")
    monkeypatch.setattr(sources, "SOURCES", {})  # no data set can be read

    parts = gather(apart)

    assert plan(apart) == expected
    assert sorted(parts.arrays()) == ["x_test", "y_test"]
    assert not parts.dataset.x_train.any()
    with pytest.raises(
        InputError, match=r"^the records of client 5 are on the machines that hold part-2, and not here$"
    ):
        parts.partition.records(5)


def test_each_part_holds_the_records_of_its_clients_and_no_other(tmp_path: Path) -> None:
    experiment = few(data={"partition": "dirichlet"})
    whole = gather(experiment)
    told = divide(experiment, 2, tmp_path / "parts")

    held = Held.open(str(tmp_path / "parts"), _digests(tmp_path / "parts"))
    for client in range(9):
        part, places = held.of_client(client), whole.partition.records(client)
        assert np.array_equal(part.x[part.records(client)], whole.dataset.x_train[places])
        assert np.array_equal(part.y[part.records(client)], whole.dataset.y_train[places])
    sizes = [whole.partition.size(client) for client in range(9)]
    assert [part["records"] for part in told["parts"]] == [sum(sizes[::2]), sum(sizes[1::2])]
    assert [len(held.parts[number].y) for number in (0, 1)] == [sum(sizes[::2]), sum(sizes[1::2])]
    with pytest.raises(RunError, match=r"^client 3 belongs to part 1, and this is part 0$"):
        held.parts[0].records(3)


def test_dividing_twice_gives_the_same_bytes_and_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    divide(few(), 2, tmp_path / "one")
    divide(few(), 2, tmp_path / "two")

    files = [file.relative_to(tmp_path / "one") for file in (tmp_path / "one").rglob("*") if file.is_file()]
    assert len(files) == 12
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)
    with pytest.raises(InputError, match=r"one exists already; choose another --out$"):
        divide(few(), 2, tmp_path / "one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_division_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)

    with pytest.raises(InputError, match=r"parts cannot be written: No space left on device$"):
        divide(few(), 2, tmp_path / "parts")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"experiment": {"seed": 2}}, r"was split with \[experiment\] seed = 1, and the experiment has 2; split"),
        ({"data": {"clients": 8}}, r"was split with \[data\] clients = 9, and the experiment has 8; split"),
        ({"client": {"held_out": 0.5}}, r"was split with \[client\] held_out = 0.0, and the experiment has 0.5; "),
        (
            {"scheme": {"name": "fl-top"}},
            r"was split with \[scheme\] public_samples cut from the train records = 0, and",
        ),
        ({"model": {"front": "scattering"}}, r"was split with \[model\] front = .none., and the experiment has"),
        (
            {"threat": {"attack": "random-update"}},
            r"^\[threat\] lets clients act on the records of others, and machines",
        ),
    ],
)
def test_records_that_were_divided_for_another_experiment_are_refused(
    tmp_path: Path, change: dict[str, dict[str, Any]], words: str
) -> None:
    divide(few(), 2, tmp_path / "parts")

    with pytest.raises(InputError, match=words):
        scheme = change.pop("scheme", {"name": "fl-std"})["name"]
        gather(_on(few(scheme, **change), tmp_path / "parts"))


def test_the_same_parts_serve_what_does_not_change_them(tmp_path: Path) -> None:
    divide(few(), 2, tmp_path / "parts")
    private = few("fl-sign", experiment={"rounds": 2}, client={"client_lr": 0.1}, aggregation={"secure": "real"})

    assert gather(_on(private, tmp_path / "parts")).scheme.name == "fl-sign"


def test_a_slice_of_the_records_that_is_not_public_is_refused_in_a_private_run(tmp_path: Path) -> None:
    apart = divided(few("fl-top"), tmp_path / "parts")
    private = few("fl-top", privacy={**PRIVATE, "unsafe_public": True})

    gather(_on(private, tmp_path / "parts"))
    with pytest.raises(PrivacyError, match=r"a slice of the clients' own records is not public"):
        gather(apart.model_copy(update={"privacy": few("fl-std", privacy=PRIVATE).privacy}))


def test_a_front_of_the_clients_records_is_refused_in_a_private_run(tmp_path: Path) -> None:
    front = {"front": "scattering", "projection": {"dims": 5, "samples": 100, "source": "digits"}}
    apart = divided(few(model=front), tmp_path / "parts")

    with pytest.raises(PrivacyError, match=r"projection.source = 'digits' is the clients' own data"):
        gather(apart.model_copy(update={"privacy": few("fl-std", privacy=PRIVATE).privacy}))


def test_virtual_clients_of_one_pool_are_not_divided(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"one of pools = 1, and a part must hold whole pools; set \[data\] pools to a"
    ):
        divide(few(data={"partition": "virtual"}), 3, tmp_path / "parts")


def test_objects_in_place_of_the_records_are_refused(tmp_path: Path) -> None:
    apart = divided(few(), tmp_path / "parts")

    with pytest.raises(InputError, match=r"^\[engine\] data says where the records are, and others were given"):
        gather(apart, Given(dataset=gather(few()).dataset))
    with pytest.raises(InputError, match=r"^inference attacks read records on this machine; remove \[engine\] data$"):
        prepare(apart)


def test_a_missing_or_damaged_common_folder_is_one_sentence(tmp_path: Path) -> None:
    apart = divided(few(), tmp_path / "parts")
    common = tmp_path / "parts" / "common"
    labels = (common / "y_test.npy").read_bytes()
    (common / "y_test.npy").write_bytes(labels[:-1] + bytes([labels[-1] ^ 1]))

    with pytest.raises(DataError, match=r"y_test.npy is not as it was written; copy common again$"):
        gather(apart)
    shutil.rmtree(common)
    with pytest.raises(InputError, match=r"^\[engine\] data has no folder common on this machine, which leads the run"):
        gather(apart)


def test_parts_are_found_where_the_machine_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    divide(few(), 3, tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "part-1")
    monkeypatch.setenv("PLACE", str(tmp_path))
    digests = _digests(tmp_path / "parts")

    found = find_parts("$PLACE/parts")

    assert found == [Found(0, digests[0], None), Found(2, digests[2], None)]
    assert find_parts("$PLACE/nothing") == []
    with pytest.raises(RunError) as missing:
        check_found({"a": found, "b": []}, digests, "$PLACE/parts")
    assert str(missing.value) == (
        "part-1 of 3 is on no machine of the cluster that has CPUs; copy it into $PLACE/parts on one of them"
    )
    check_found({"a": found, "b": [Found(1, digests[1], None), found[0]]}, digests, "$PLACE/parts")


def test_parts_that_are_damaged_foreign_or_misnamed_are_named(tmp_path: Path) -> None:
    divide(few(), 2, tmp_path / "one")
    divide(few(data={"clients": 10}), 2, tmp_path / "two")
    digests, part = _digests(tmp_path / "one"), tmp_path / "one" / "part-1"

    def refusal() -> str:
        with pytest.raises(RunError) as refused:
            check_found({"m": find_parts(str(tmp_path / "one"))}, digests, "/parts")
        return str(refused.value)

    shutil.move(part, tmp_path / "kept")
    shutil.copytree(tmp_path / "two" / "part-1", part)
    assert refusal() == (
        "machine m: part-1 in /parts is of another split than common on this one; copy all of them from one split"
    )
    shutil.rmtree(part)
    shutil.copytree(tmp_path / "one" / "part-0", part)
    assert refusal() == f"machine m: {part} holds part-0, which is not its name; copy part-1 there"
    shutil.rmtree(part)
    shutil.copytree(tmp_path / "kept", part)
    whole = (part / "x_train.npy").read_bytes()
    (part / "x_train.npy").write_bytes(whole[:-1])
    assert refusal() == f"machine m: {part}/x_train.npy is not as it was written; copy part-1 again"
    (part / "x_train.npy").unlink()
    assert refusal() == f"machine m: {part}/x_train.npy does not exist"
    (part / "part.json").write_text("{")
    assert refusal().startswith(f"machine m: {part}/part.json is damaged or not what its name says (")
    (part / "part.json").write_text('{"version": 2}')
    assert refusal() == f"machine m: {part}/part.json has version 2, and 1 is known; split again"


def test_a_client_that_two_parts_claim_is_refused(tmp_path: Path) -> None:
    divide(few(), 2, tmp_path / "parts")
    digests, told = _digests(tmp_path / "parts"), tmp_path / "parts" / "part-1" / "part.json"
    shutil.rmtree(tmp_path / "parts" / "part-1")
    shutil.copytree(tmp_path / "parts" / "part-0", tmp_path / "parts" / "part-1")
    told.write_text(told.read_text().replace('"number": 0', '"number": 1'))  # the clients of part 0, under another name

    with pytest.raises(RunError, match=r"^machine m: part-1 in /parts is of another split than common"):
        check_found({"m": find_parts(str(tmp_path / "parts"))}, digests, "/parts")


def test_workers_go_in_turn_to_machines_that_hold_parts_and_the_first_reach_all() -> None:
    held = {"a": {0}, "b": set[int](), "c": {0, 1}, "d": {2}}
    cpus = {"a": 2, "b": 9, "c": 1, "d": 3}

    assert place_workers(held, cpus, 0) == ["c", "d", "a", "d", "a", "d"]
    assert place_workers(held, cpus, 2) == ["c", "d"]
    for workers in (1, 7):
        with pytest.raises(
            InputError, match=rf"^\[engine\] workers must be from 2, .* to the 6 CPUs .*, got {workers}$"
        ):
            place_workers(held, cpus, workers)


def _digests(folder: Path) -> tuple[str, ...]:
    return tuple(json.loads((folder / "common" / "split.json").read_text())["parts"])
