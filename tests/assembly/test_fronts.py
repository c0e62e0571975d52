from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.assembly.model import _ranges
from sottovoce.assembly.parts import gather
from sottovoce.checks.twin import play, same
from sottovoce.config.experiment import Experiment, parse
from sottovoce.config.experiment import load as load_file
from sottovoce.core.errors import ConfigError, InputError, PrivacyError, RunError
from sottovoce.core.streams import Purpose
from sottovoce.data import load
from sottovoce.federation.client import read_setup, setup_message
from sottovoce.federation.engines.local import LocalEngine
from sottovoce.models.export import export
from sottovoce.models.fronted import Fronted
from sottovoce.models.partial import Partial
from sottovoce.models.zoo import network
from sottovoce.planning.plan import plan
from sottovoce.runs.loop import run
from sottovoce.runs.saved_model import read_model
from sottovoce.search.sweep import layout, sweep

SCATTERING = {"front": "scattering", "projection": {"dims": 40, "samples": 200}}
GABOR = {"name": "cnn", "front": "gabor", "projection": {"samples": 300}}
HEAD = {"train": "head"}
PRIVACY = {"noise_multiplier": 2.0, "delta": 1e-2, "clip_norm": 0.5, "accountant": "rdp"}


def fronted(**tables: dict[str, Any]) -> Experiment:
    return small(**{"model": SCATTERING, "client": {"client_lr": 0.5}, "engine": {"workers": 1}, **tables})


def model_of(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(folder / "model.npz") as arrays:
        return dict(arrays)


def test_a_run_behind_a_front_learns_and_tells_what_the_front_is(tmp_path: Path) -> None:
    summary = run(fronted(experiment={"rounds": 20}), tmp_path / "run")

    assert summary["accuracy_final"] > 0.8
    assert (summary["front"], summary["train"]) == ("scattering", "all")
    told = summary["projection"]
    assert told["source"] == "synthetic: dead leaves, seed 1, 200 images" and told["synthetic"] is True
    assert told["dims"] == 40
    assert summary["dim"] == summary["parameters"] == 41 * 10
    # The set-up is a seed and the numbers of the front; the folder keeps them as they travelled.
    assert (
        summary["bytes_setup_per_client"] == 32 + told["bytes"] == 32 + (tmp_path / "run" / "front.bin").stat().st_size
    )


def test_the_head_of_the_papers_cnn_alone_trains_and_travels(tmp_path: Path) -> None:
    experiment = fronted(model=GABOR, scheme=HEAD, experiment={"rounds": 10})

    summary = run(experiment, tmp_path / "run")

    assert summary["accuracy_final"] > 0.8
    assert (summary["dim"], summary["message_length"]) == (5130, 5130)
    assert summary["parameters"] == gather(small(model={"name": "cnn"})).network.dim
    assert summary["bytes_up_per_client_round"] == 4 * 5130 + 24
    assert summary["bytes_down_per_client_round"] == 4 * 5130 + 24
    assert summary["bytes_setup_per_client"] == 32 + 25 + summary["projection"]["bytes"]
    # The file holds the whole CNN, and its lower layers are as the front filled them.
    start = gather(experiment).network.tensors(gather(experiment).start)
    final = model_of(tmp_path / "run")
    assert list(final) == list(start)
    assert all(np.array_equal(final[name], start[name]) for name in list(start)[:-2])
    assert not np.array_equal(final["6.kernel"], start["6.kernel"])


def test_a_run_without_a_front_says_so_and_keeps_no_numbers(tmp_path: Path) -> None:
    summary = run(small(engine={"workers": 1}), tmp_path / "run")

    assert (summary["front"], summary["projection"], summary["train"]) == ("none", None, "all")
    assert summary["bytes_setup_per_client"] == 32
    assert not (tmp_path / "run" / "front.bin").exists()


def test_naming_every_layer_is_training_all_of_them(tmp_path: Path) -> None:
    run(small(engine={"workers": 1}), tmp_path / "all")
    run(small(engine={"workers": 1}, scheme={"train": "layers: fc1"}), tmp_path / "named")

    assert (tmp_path / "all" / "model.npz").read_bytes() == (tmp_path / "named" / "model.npz").read_bytes()


@pytest.mark.parametrize("tables", [{}, {"model": GABOR, "scheme": HEAD}], ids=["scattering", "gabor"])
def test_workers_change_no_bit(tables: dict[str, Any], tmp_path: Path) -> None:
    for workers in (1, 2):
        run(fronted(**tables, engine={"workers": workers}, experiment={"rounds": 2}), tmp_path / str(workers))

    assert (tmp_path / "1" / "model.npz").read_bytes() == (tmp_path / "2" / "model.npz").read_bytes()


@pytest.mark.parametrize("secure", ["ideal", "real"])
def test_a_private_run_behind_a_front_is_that_of_the_slow_engine(secure: str) -> None:
    experiment = fronted(privacy=PRIVACY, aggregation={"secure": secure})

    by_hand = play(experiment, rounds=2)

    with_workers = play(
        experiment, rounds=2, engine=lambda parts: LocalEngine(parts.blueprint(), parts.arrays(), workers=1)
    )
    assert same(by_hand, with_workers)
    assert not np.array_equal(by_hand.models[0], by_hand.models[2])


@pytest.mark.parametrize("attack", ["gradient-ascent", "label-flip", "out-backdoor", "edge-case-backdoor"])
@pytest.mark.parametrize("tables", [{}, {"model": GABOR, "scheme": HEAD}], ids=["scattering", "gabor"])
def test_attackers_train_behind_the_same_front(attack: str, tables: dict[str, Any], tmp_path: Path) -> None:
    honest = run(fronted(**tables, experiment={"rounds": 4}), tmp_path / "honest")
    attacked = run(
        fronted(**tables, experiment={"rounds": 4}, threat={"attack": attack, "fraction": 0.4}), tmp_path / "attacked"
    )

    assert attacked["accuracy_final"] is not None
    one, other = (list(model_of(tmp_path / name).values())[-2] for name in ("honest", "attacked"))
    assert not np.array_equal(one, other)
    assert honest["failures"] == attacked["failures"] == 0


def test_what_a_client_reads_in_the_set_up_are_the_features_that_workers_train_on() -> None:
    parts = gather(fronted())
    bound = parts.scheme.bind(parts.network.dim, seed=parts.seeds.public.seed, start=parts.start)
    setup = setup_message(bound, parts.seeds.public, parts.network.start_payload())
    blank = Fronted(parts.network.front.__class__((8, 8, 1), 1 / 16, 40), parts.network.model)  # type: ignore[attr-defined]

    client = blank.told(setup[32:], parts.seeds.public.get(Purpose.INIT))
    scheme = read_setup(parts.scheme, client, setup)

    assert np.array_equal(client.features(parts.dataset.x_train[:50]), parts.arrays()["x_train"][:50])
    assert np.array_equal(scheme.start, parts.start)  # type: ignore[arg-type]


@pytest.mark.parametrize("tables", [{}, {"model": GABOR, "scheme": HEAD}], ids=["scattering", "gabor"])
def test_a_resumed_run_goes_on_with_the_numbers_that_were_sent(
    tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine finds other eigenvectors; here, the fit is broken on purpose and must not be asked."""
    from sottovoce.models.fronts.projection import Projection

    experiment = fronted(**tables)
    run(experiment, tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise StopError

    with pytest.raises(StopError):
        run(experiment, tmp_path / "resumed", observe=stop)

    def broken(*_: Any) -> Projection:
        raise RunError("fitted again")

    monkeypatch.setattr(Projection, "fit", broken)
    run(experiment, tmp_path / "resumed", resume=True)

    assert (tmp_path / "whole" / "model.npz").read_bytes() == (tmp_path / "resumed" / "model.npz").read_bytes()
    with pytest.raises(RunError, match="fitted again"):
        run(experiment, tmp_path / "other")


@pytest.mark.parametrize(
    "tables",
    [{}, {"model": GABOR, "scheme": HEAD}, {"model": {**SCATTERING, "name": "mlp", "hidden": 8}, "scheme": HEAD}],
    ids=["scattering", "gabor", "mlp"],
)
def test_a_saved_model_reads_raw_records(tables: dict[str, Any], tmp_path: Path) -> None:
    summary = run(fronted(**tables), tmp_path / "run")
    digits = load("digits")

    made = read_model(tmp_path / "run").predict(digits.x_test, digits.y_test.astype(np.int64))

    assert made.metrics()["accuracy"] == pytest.approx(summary["accuracy_final"])


def test_a_saved_model_whose_front_is_lost_or_damaged_is_refused(tmp_path: Path) -> None:
    run(fronted(experiment={"rounds": 1}), tmp_path / "run")
    path = tmp_path / "run" / "front.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)

    with pytest.raises(RunError, match=r"front\.bin, the numbers of front 'scattering', is missing or damaged"):
        read_model(tmp_path / "run")
    path.unlink()
    with pytest.raises(RunError, match="is missing or damaged"):
        read_model(tmp_path / "run")


WHITEN = {"whiten": True, "whiten_dims": 30}


def test_an_exported_npz_brings_the_numbers_of_its_front(tmp_path: Path) -> None:
    run(fronted(experiment={"rounds": 1}), tmp_path / "run")
    saved = read_model(tmp_path / "run")

    export(saved.network, saved.params, "npz", tmp_path / "model.npz", saved.inputs)

    with np.load(tmp_path / "model.npz") as arrays:
        told = json.loads(arrays["architecture"].item())
        assert {"front.channels", "front.places", "front.pairs", "front.centre", "front.factor"} <= set(arrays)
    assert told["front"]["name"] == "scattering" and told["layers"][-1]["units"] == 10


@pytest.mark.parametrize("form", ["torch", "onnx"])
@pytest.mark.parametrize("whiten", [False, True], ids=["plain", "whitened"])
@pytest.mark.parametrize("front", ["scattering", "fourier"])
def test_a_graph_has_its_front_inside(form: str, front: str, whiten: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    if front == "scattering":
        data, x = "digits", load("digits").x_test[:7]
    else:
        x = rng.normal(size=(300, 6)).astype(np.float32)
        y = (x[:, 0] > 0).astype(np.int64)
        np.savez(tmp_path / "rows.npz", x_train=x, y_train=y, x_test=x, y_test=y)
        data, x = str(tmp_path / "rows.npz"), x[:7]
    tables: dict[str, Any] = {
        "experiment": {"rounds": 1},
        "data": {"source": data},
        "model": {"name": "logistic", "front": front, "projection": {"dims": 40}, **(WHITEN if whiten else {})},
        "scheme": {"name": "fl-std"},
    }
    run(parse(tables | {"data": {"source": data, "clients": 5}, "cohort": {"sample_rate": 1}}), tmp_path / "run")
    saved = read_model(tmp_path / "run")
    if form == "onnx":
        for package in ("onnx", "onnxscript"):
            pytest.importorskip(package)
        runtime = pytest.importorskip("onnxruntime")

    saved.export(tmp_path / "model", form)

    if form == "torch":
        found = torch.export.load(tmp_path / "model").module()(torch.from_numpy(x)).numpy()
    else:
        (found,) = runtime.InferenceSession(str(tmp_path / "model")).run(None, {"records": x})
    np.testing.assert_allclose(found, saved.predict(x).probabilities, atol=2e-5)


def test_a_front_that_no_graph_holds_is_named(tmp_path: Path) -> None:
    from sottovoce.models.fronts.hashed import Hashed

    model = Fronted(Hashed((9,), 20), network("logistic", (20,), 2))
    with pytest.raises(InputError, match="front 'hashed' hashes tokens, which no graph holds; use --to npz"):
        export(model, np.zeros(model.dim, np.float32), "torch", tmp_path / "model.pt2", {"input_type": "uint16"})


def test_the_papers_cnn_with_a_gabor_front_is_exported_whole(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    run(fronted(model=GABOR, scheme=HEAD, experiment={"rounds": 1}), tmp_path / "run")
    saved, x = read_model(tmp_path / "run"), load("digits").x_test[:5]

    export(saved.network, saved.params, "torch", tmp_path / "model.pt2", saved.inputs)

    found = torch.export.load(tmp_path / "model.pt2").module()(torch.from_numpy(x)).numpy()
    assert np.allclose(found, saved.predict(x).probabilities, atol=1e-5)


def test_leaves_are_public_records_for_a_scheme_that_chooses_coordinates(tmp_path: Path) -> None:
    scheme = {"name": "fl-top", "ratio": 0.2, "public": "leaves", "public_samples": 50}
    privacy = {key: value for key, value in PRIVACY.items() if key != "clip_norm"}
    experiment = fronted(scheme=scheme, privacy={**privacy, "clipping": "public"})

    summary = run(experiment, tmp_path / "run")

    assert summary["public"] == "synthetic: dead leaves, seed 1, 50 images"
    assert summary["message_length"] == 82
    assert gather(experiment).splits["public"].x_train.max() == 16  # in the units of the clients' records


def test_a_scheme_sees_only_what_trains(tmp_path: Path) -> None:
    experiment = small(
        model={"name": "mlp", "hidden": 16}, scheme={"name": "fl-cs", "ratio": 0.5, **HEAD}, engine={"workers": 1}
    )

    summary = run(experiment, tmp_path / "run")

    assert (summary["dim"], summary["parameters"]) == (170, 170 + 65 * 16)
    assert isinstance(gather(experiment).network, Partial)


def test_a_table_is_standardised_by_the_ranges_of_its_schema() -> None:
    number = {"kind": "number", "missing": "middle"}
    columns = [
        {**number, "low": 0, "high": 120, "scale": 120, "center": 0},
        {**number, "low": None, "high": None, "scale": 15, "center": 75, "missing": "category"},
        {"kind": "category", "categories": ["f", "m"], "missing": "category"},
    ]

    centre, spread = _ranges({"columns": columns})

    assert centre == (0.5, 0, 0, 0, 0, 0)
    assert spread == pytest.approx((12**-0.5, 1, 1, 1, 1, 1))
    assert _ranges(None) == ((), ())


def test_rows_of_numbers_and_texts_run_behind_their_fronts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 400)
    rows = rng.standard_normal((400, 4)) + 2 * y[:, None] * np.sign(rng.standard_normal((400, 1)))
    words = (rng.integers(1, 50, (400, 12)) + 50 * y[:, None]).astype(np.uint16)
    for name, x in (("rows", rows.astype(np.float32)), ("words", words)):
        np.savez(tmp_path / f"{name}.npz", x_train=x[:300], y_train=y[:300], x_test=x[300:], y_test=y[300:])
    base = {"experiment": {"rounds": 15}, "client": {"client_lr": 1.0, "local_steps": 5}}

    found = {
        front: run(
            fronted(model={"name": "logistic", "front": front, "projection": {"dims": 100}}, **base, data=data),
            tmp_path / front,
        )
        for front, data in (
            ("fourier", {"source": str(tmp_path / "rows.npz")}),
            ("hashed", {"source": str(tmp_path / "words.npz")}),
        )
    }
    linear = run(small(**base, data={"source": str(tmp_path / "rows.npz")}), tmp_path / "linear")

    assert found["fourier"]["accuracy_final"] > linear["accuracy_final"] + 0.1  # two clouds around one: not linear
    assert found["hashed"]["accuracy_final"] > 0.9
    assert found["hashed"]["projection"] == {
        "source": "none: formulas, seed 1",
        "synthetic": None,
        "dims": 100,
        "bytes": 0,
    }
    with np.load(tmp_path / "words.npz") as arrays:
        made = read_model(tmp_path / "hashed").predict(arrays["x_test"], arrays["y_test"])
    assert made.metrics()["accuracy"] == found["hashed"]["accuracy_final"]


def test_a_function_of_the_users_own_is_a_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_fronts.py").write_text("def halves(x):\n    return x.reshape(len(x), 2, -1).sum(2) / 100\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    plain = run(fronted(model={"front": "mine_fronts:halves"}, experiment={"rounds": 1}), tmp_path / "plain")
    projected = {"front": "mine_fronts:halves", "projection": {"dims": 2, "samples": 50}}
    fewer = run(fronted(model=projected, experiment={"rounds": 1}), tmp_path / "fewer")

    assert plain["dim"] == fewer["dim"] == 30
    assert plain["projection"]["source"] == "none: your own function" and plain["bytes_setup_per_client"] == 32
    assert fewer["projection"]["synthetic"] is True and fewer["projection"]["bytes"] > 0


def test_a_plan_tells_the_front_without_computing_features(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RunError("features were computed")

    experiment = fronted(privacy=PRIVACY)
    monkeypatch.setattr("sottovoce.assembly.parts.all_features", refuse)

    told = plan(experiment)

    assert told["front"] == "scattering" and told["projection"]["dims"] == 40
    assert told["bytes_setup_per_client"] == 32 + told["projection"]["bytes"]
    with pytest.raises(RunError, match="features were computed"):
        plan(experiment, measure=True)


FASHION = {"data": {"source": "leaves", "clients": 20}}  # 28 x 28


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"model": {"front": "scatering"}}, "front has no 'scatering'; did you mean 'scattering'?"),
        ({"model": {**SCATTERING, "projection": {"dims": 325}}}, "at most the 324 coefficients .* got 325"),
        ({"model": {**SCATTERING, "projection": {"dims": 0}}}, r"\[model\] projection.dims must be at least 1, got 0"),
        ({"model": {"front": "gabor"}}, "fills the first layers of model 'cnn', and 'logistic' has others"),
        ({"model": {"front": "gabor", "name": "mlp"}}, "and 'mlp' has others"),
        ({"model": {**SCATTERING, "name": "cnn"}}, "gives rows of 40 features, which model 'cnn' cannot read"),
        ({"model": {"front": "hashed"}}, "reads rows of token ids"),
        ({"model": {"front": "fourier"}}, "reads rows of numbers"),
        ({"model": {"projection": {"dims": 3}}}, 'front = "none" does nothing with projection.dims; set a front'),
        ({"model": {"front": "fourier", "projection": {"ngrams": 3}}}, "does nothing with projection.ngrams; it has"),
        ({"model": {"front": "hashed", "projection": {"source": "mnist"}}}, "does nothing with projection.source"),
        ({"model": {"front": "a:b", "projection": {"source": "leaves"}}}, "set dims"),
        ({"model": {"front": "no_such_module:f"}}, "'no_such_module' cannot be imported"),
        ({"model": {**SCATTERING, "projection": {"dimz": 3}}}, r"\[model\] projection has no key 'dimz'; did you mean"),
        ({"model": {**SCATTERING, "projection": 3}}, r"\[model\] projection must be a table, got 3"),
        ({"scheme": {"train": "hed"}, "model": SCATTERING}, 'train must be "all", "head" or'),
        ({"scheme": {"train": "layers: fc9"}}, "model 'logistic' has no layer 'fc9'"),
        (
            {**FASHION, "model": {**SCATTERING, "projection": {"source": "digits"}}},
            r"'digits' has records of shape \(8, 8, 1\), but 'leaves' has \(28, 28, 1\)",
        ),
        ({"model": {**SCATTERING, "projection": {"source": "mnst"}}}, "there is no data set 'mnst'; did you mean"),
    ],
)
def test_a_front_that_cannot_be_is_refused_in_one_sentence(tables: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        gather(small(**tables))

    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


def test_an_image_front_on_texts_or_tables_is_refused(tmp_path: Path) -> None:
    for x in (np.ones((9, 400), np.uint16), np.ones((9, 5), np.float32)):
        np.savez(tmp_path / "x.npz", x_train=x, y_train=np.arange(9) % 2, x_test=x, y_test=np.arange(9) % 2)
        with pytest.raises(InputError, match="reads images"):
            gather(small(data={"source": str(tmp_path / "x.npz"), "clients": 3}, model=SCATTERING))
        with pytest.raises(InputError, match="model 'cnn' cannot read records"):
            gather(small(data={"source": str(tmp_path / "x.npz"), "clients": 3}, model=GABOR))


@pytest.mark.parametrize("spelling", ["mine.npz", "./mine.npz", "absolute"])
def test_a_projection_from_the_clients_own_records_is_refused_in_a_private_run(
    spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = load("digits")
    arrays = {name: getattr(digits, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "mine.npz", **arrays)
    monkeypatch.chdir(tmp_path)
    source = str(tmp_path / "mine.npz") if spelling == "absolute" else spelling
    model = {**SCATTERING, "projection": {"dims": 20, "source": source, "samples": 50}}
    tables: dict[str, Any] = {"data": {"source": "mine.npz", "clients": 20, "classes": 10}, "model": model}

    with pytest.raises(PrivacyError, match="is the clients' own data, which is not public"):
        gather(small(**tables, privacy=PRIVACY))

    gather(small(**tables))  # a run that is not private may
    gather(small(**tables, privacy={**PRIVACY, "unsafe_public": True}))


def test_a_key_of_the_projection_can_be_set_and_swept(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[data]\nsource = "digits"\n[model]\nname = "logistic"\nfront = "scattering"\n')

    changed = load_file(tmp_path / "a.toml", ["model.projection.dims=30", "scheme.train=head"])
    swept = load_file(
        tmp_path / "a.toml",
        ["sweep.model.projection=[{dims = 10}, {dims = 20}]", 'sweep.scheme.name=["fl-std", "fl-top"]'],
    )

    assert changed.model.projection.dims == 30 and changed.scheme.train == "head"
    points = layout(swept)
    assert sorted({point.model.projection.dims for point in points}) == [10, 20]
    assert "experiment-dims-10-fl-std" in {point.experiment.name for point in points}
    with pytest.raises(ConfigError, match="is not a table"):
        load_file(tmp_path / "a.toml", ["model.front.dims=30"])


def test_the_runs_of_a_sweep_compute_features_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sottovoce.models.fronts.scattering import Scattering

    seen: list[int] = []
    features = Scattering.features

    def counted(self: Scattering, x: Any) -> Any:
        seen.append(len(x))
        return features(self, x)

    monkeypatch.setattr(Scattering, "features", counted)
    tables = fronted(experiment={"rounds": 1}).tables()

    summaries = sweep(parse({**tables, "sweep": {"client": {"client_lr": [0.1, 0.2]}}}), tmp_path / "grid")

    assert sum(seen) == 1797
    assert summaries[0]["accuracy_final"] != summaries[1]["accuracy_final"]


def test_the_resolved_experiment_says_the_same_again() -> None:
    experiment = fronted(scheme=HEAD)

    assert parse(experiment.tables()).identity() == experiment.identity()


def test_a_torch_module_freezes_its_own_parameters() -> None:
    torch = pytest.importorskip("torch")
    from sottovoce.assembly.overrides import Given
    from sottovoce.models import make_model

    given = Given(network=make_model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), (8, 8, 1), 10))

    with pytest.raises(InputError, match=r"call requires_grad_\(False\)"):
        gather(small(scheme=HEAD), given)
    with pytest.raises(InputError, match="is for a model that is named"):
        gather(small(model=SCATTERING), given)
