"""Defences in an experiment file: what goes with them and what does not."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.small import small

from sottovoce.assembly.overrides import Given
from sottovoce.assembly.parts import gather
from sottovoce.assembly.protection import protect
from sottovoce.assembly.stages import TRAINING, stages
from sottovoce.assembly.threat import check_defended_cohort
from sottovoce.checks.twin import Hand, few
from sottovoce.config.experiment import parse
from sottovoce.config.privacy import AggregationTable
from sottovoce.core.errors import ConfigError, InputError
from sottovoce.data import load as load_data
from sottovoce.data import partition
from sottovoce.federation.aggregation.robust import Robust
from sottovoce.federation.cohort import Cohort
from sottovoce.schemes import make as make_scheme
from sottovoce.threats.defences import known


def defended(name: str = "median", **tables: dict[str, Any]) -> Any:
    aggregation = {"defence": name, **tables.pop("aggregation", {})}
    return small(cohort={"sample_rate": 1, **tables.pop("cohort", {})}, aggregation=aggregation, **tables)


def test_the_table_knows_every_defence() -> None:
    for name in ("none", *known()):
        assert AggregationTable(defence=name).defence == name
    with pytest.raises(ConfigError, match=r'defence must be "none", "median", .* got "crum"; did you mean "krum"'):
        parse({"aggregation": {"defence": "crum"}})


@pytest.mark.parametrize(
    ("name", "tables", "words"),
    [
        ("krum", {"aggregation": {"secure": "ideal"}}, "a secure sum shows the server no single update"),
        ("krum", {"aggregation": {"secure": "real"}}, 'set [aggregation] secure = "none" or remove defence'),
        ("krum", {"privacy": {"noise_multiplier": 1.0}}, "in a private run the server may see only their sum"),
        (
            "krum",
            {"privacy": {"noise_multiplier": 1.0}, "aggregation": {"secure": "none"}},
            'remove defence (a private run has [server] guard = "energy") or [privacy]',
        ),
        ("median", {"scheme": {"name": "fl-sign"}}, "fl-sign sends signs, whose majority vote already is a defence"),
        ("median", {"scheme": {"name": "sign-sgd"}}, "nobody counts for more than one vote; remove defence"),
        (
            "median",
            {"scheme": {"name": "fl-once"}, "experiment": {"rounds": 1}, "cohort": {"sampling": "fixed"}},
            "but fl-once asks all clients at once for sums over their records; remove one of them",
        ),
        ("fltrust", {"scheme": {"warm_start": "fl-once"}}, 'but [scheme] warm_start = "fl-once" asks all clients at'),
        ("median", {"aggregation": {"weighting": "records"}}, "a malicious one may claim any number of records"),
        ("median", {"aggregation": {"defence_bound": 1.0}}, 'is for defence = "norm-bound", not "median"; remove it'),
        ("none", {"aggregation": {"defence_bound": 1.0}}, 'is for defence = "norm-bound", not "none"; remove it'),
        ("median", {"aggregation": {"defence_attackers": 0}}, "defence_attackers must be in (0, 1), got 0"),
        ("multikrum", {}, 'did you mean "multi-krum"?'),
    ],
)
def test_what_a_defence_cannot_be_combined_with_is_refused(name: str, tables: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        defended(name, **tables)

    assert words in str(caught.value)
    assert str(caught.value).count(". ") == 0  # one sentence


def test_a_refusal_ends_the_command_with_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_text('[aggregation]\ndefence = "krum"\nsecure = "real"\n')

    done = subprocess.run([sys.executable, "-m", "sottovoce", "run", str(file)], capture_output=True, text=True)

    assert done.returncode == 2
    assert "no single update" in " ".join(done.stderr.split())


def test_a_scheme_object_that_sends_signs_is_refused_too() -> None:
    with pytest.raises(InputError, match=r"the given scheme: .* fl-sign sends signs"):
        gather(defended("median"), Given(scheme=make_scheme("fl-sign")))


@pytest.mark.parametrize(
    ("name", "clients", "share", "fits"),
    [
        ("median", 20, "0.45", True),
        ("median", 20, "1/2", False),
        ("trimmed-mean", 21, "10/21", True),
        ("krum", 13, "5/13", True),
        ("krum", 12, "5/12", False),
        ("multi-krum", 12, "5/12", False),
        ("bulyan", 23, "5/23", True),
        ("bulyan", 22, "5/22", False),
        ("geometric-median", 20, "1/2", False),
        ("norm-bound", 20, "1/2", False),
        ("fltrust", 20, "0.9", True),
    ],
)
def test_a_fixed_cohort_must_be_enough_for_the_defence(name: str, clients: int, share: str, fits: bool) -> None:
    experiment = defended(
        name, data={"clients": clients}, cohort={"sampling": "fixed"}, aggregation={"defence_attackers": share}
    )

    if fits:
        gather(experiment)
    else:
        with pytest.raises(InputError, match=f"but a cohort has {clients}; raise .cohort. sample_rate or lower"):
            gather(experiment)


def test_a_given_bound_stands_more_than_the_median_of_norms() -> None:
    gather(defended("norm-bound", aggregation={"defence_attackers": "0.9", "defence_bound": 1.0}))


def test_the_smallest_poisson_cohort_must_be_enough_too() -> None:
    tables: dict[str, Any] = {"data": {"clients": 60}, "cohort": {"sample_rate": "1/6"}}

    with pytest.raises(InputError) as caught:
        gather(defended("krum", **tables))
    tables["cohort"]["sampling"] = "fixed"
    gather(defended("krum", **tables))

    assert str(caught.value) == (
        '[aggregation] defence = "krum" needs 5 clients to stand 1 malicious (1/5 of 1, rounded up), but Poisson '
        'sampling of 10 clients may draw 1; set [cohort] sampling = "fixed", raise [cohort] sample_rate or lower '
        "[aggregation] defence_attackers"
    )


def test_sizes_between_the_smallest_and_the_largest_are_looked_at() -> None:
    """Bulyan stands 1/5 of 15 and of 20 clients, but of 16 it would need 19."""
    table, drawn = AggregationTable(defence="bulyan"), Cohort(20, Fraction(99, 100))
    assert (drawn.least, drawn.most) == (15, 20)

    check_defended_cohort(table, Cohort(15, Fraction(1)))
    check_defended_cohort(table, Cohort(20, Fraction(1)))
    with pytest.raises(InputError, match=r"needs 19 clients to stand 4 malicious .* may draw 16"):
        check_defended_cohort(table, drawn)


def test_every_client_counts_the_same_under_a_defence() -> None:
    uneven = {"partition": "dirichlet", "concentration": 0.3}

    assert gather(small(data=uneven)).weighted
    assert not gather(defended("median", data=uneven)).weighted


def test_a_table_becomes_an_aggregator() -> None:
    experiment = few(
        aggregation={"defence": "norm-bound", "defence_bound": 2.5, "defence_attackers": "1/3", "secure": "none"}
    )
    parts = gather(experiment)

    aggregator = stages(protect(parts))[TRAINING].server_side(Hand(parts)).server.aggregator

    assert isinstance(aggregator, Robust)
    assert str(aggregator.defence) == "NormBound(bound=2.5)"
    assert (aggregator.share, aggregator.expected, aggregator.malicious(10)) == (Fraction(1, 3), 9.0, 4)


def test_keys_survive_being_written_and_read_again() -> None:
    experiment = defended("krum", aggregation={"defence_attackers": "1/7"})

    assert parse(experiment.tables()).aggregation == experiment.aggregation.model_copy(update={"secure": "none"})


def test_the_servers_own_records_are_no_clients() -> None:
    parts = gather(defended("fltrust", scheme={"public_samples": 50}))

    assert parts.splits["public"].records == 50
    assert parts.dataset.records == gather(defended("median")).dataset.records - 50


def test_without_public_records_fltrust_is_refused() -> None:
    """A partition that was given covers all records: none can be set aside."""
    dataset = load_data("digits")
    owners = partition("iid", dataset.y_train, 20, gather(small()).seeds.world)

    with pytest.raises(InputError, match=r"name another data set in \[scheme\] public"):
        gather(defended("fltrust"), Given(dataset=dataset, partition=owners))


def test_the_servers_update_is_made_as_a_client_makes_its_own() -> None:
    experiment = few(aggregation={"defence": "fltrust"}, client={"batch_size": 4})
    parts = gather(experiment)
    hand = Hand(parts)
    ready = stages(protect(parts))[TRAINING].server_side(hand)
    aggregator = ready.server.aggregator
    assert isinstance(aggregator, Robust)
    assert aggregator.reference is not None
    moved = parts.start + np.float32(0.1)
    state = ready.server.init(moved)

    made = aggregator.reference(3, ready.scheme.downlink(state, 0))

    records = np.arange(parts.splits["public"].records)
    assert np.array_equal(made, hand.public_message(ready.scheme, moved, 0, records, 3))
    assert not np.array_equal(made, hand.public_message(ready.scheme, moved, 0, records, 4))
    assert not np.array_equal(made, hand.public_message(ready.scheme, parts.start, 0, records, 3))
    gradient = hand.gradient(moved, "public", records)
    assert float(made @ gradient) < 0  # downhill
