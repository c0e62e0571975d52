"""A site's policy is enforced on the node, before records are read and before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.cli import main
from sottovoce.config.experiment import to_toml
from sottovoce.core.errors import InputError, PolicyError
from sottovoce.deployment.flower.node import answers
from sottovoce.deployment.keys import add_nodes, init_federation, sign_roster
from sottovoce.deployment.node.build import config_digest
from sottovoce.deployment.node.join import prepare
from sottovoce.deployment.node.node import Node
from sottovoce.deployment.node.state import Book
from sottovoce.deployment.policy import DataRule, Guard, SitePolicy, vouch
from sottovoce.federation.engines.mqtt.envelope import Kind
from sottovoce.privacy.accounting.accountant import renyi_orders
from sottovoce.privacy.ledger import verify
from sottovoce.secagg import verifying_key
from tests.deployment.test_node import PRIVATE, SECURE, plan_of, table
from tests.deployment.wired import roster_of

NOON = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
DIGEST = config_digest(PRIVATE)


def policy(**rules: Any) -> SitePolicy:
    return SitePolicy.parse({"rules": rules})


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"secure": ["ballot"]}, "secure"),
        ({"schemes": ["fl-top"]}, "schemes"),
        ({"models": []}, "models"),
        ({"least_sites": 5}, "5 sites"),
        ({"least_cohort": 4.5}, "4.5 sites a round"),
        ({"experiments": ["0" * 64]}, "vouches"),
        ({"signers": ["0" * 64]}, "vouches"),
    ],
)
def test_each_rule_refuses_what_it_does_not_allow_and_nothing_else(rules: dict[str, Any], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        policy(**rules).check(PRIVATE, DIGEST)
    kind = {
        "secure": ["real"],
        "schemes": [PRIVATE.scheme.name],
        "models": [PRIVATE.model.name],
        "least_sites": 4,
        "least_cohort": 2.0,
        "experiments": [DIGEST],
    }
    policy(**kind).check(PRIVATE, DIGEST)


def test_a_policy_without_a_word_allows_private_experiments_alone() -> None:
    SitePolicy.parse({}).check(PRIVATE, DIGEST)
    with pytest.raises(PolicyError, match="private"):
        SitePolicy.parse({}).check(SECURE, config_digest(SECURE))
    policy(private=False).check(SECURE, config_digest(SECURE))


def test_aggregators_are_known_by_their_keys() -> None:
    roster = roster_of(4)
    policy(servers=[roster.server.hex()]).check_roster(roster)
    with pytest.raises(PolicyError, match="servers"):
        policy(servers=["0" * 64]).check_roster(roster)


def test_an_experiment_is_allowed_by_a_signer_and_by_no_other_signature() -> None:
    board, rules = b"b" * 32, {"signers": [verifying_key(b"b" * 32).hex()]}
    policy(**rules).check(PRIVATE, DIGEST, signatures=vouch(DIGEST, board))
    for wrong in (vouch("0" * 64, board), vouch(DIGEST, b"c" * 32), {rules["signers"][0]: "00" * 64}, {"x": "y"}):
        with pytest.raises(PolicyError, match="vouches"):
            policy(**rules).check(PRIVATE, DIGEST, signatures=wrong)


@settings(max_examples=200)
@given(begin=st.integers(0, 1439), end=st.integers(0, 1439), minute=st.integers(0, 1439))
def test_hours_may_reach_over_midnight(begin: int, end: int, minute: int) -> None:
    clock = "{:02d}:{:02d}"
    span = f"{clock.format(*divmod(begin, 60))}-{clock.format(*divmod(end, 60))}"
    inside = {(begin + step) % 1440 for step in range((end - begin) % 1440 or 1440)}
    try:
        policy(hours=[span]).check_hours(datetime(2026, 1, 1, *divmod(minute, 60), tzinfo=UTC))
        assert minute in inside
    except PolicyError:
        assert minute not in inside


@settings(max_examples=50)
@given(sizes=st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=30))
def test_no_more_bytes_are_sent_in_a_day_than_the_policy_allows(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, bool]]
) -> None:
    guard = Guard(policy(bytes_a_day=100), tmp_path_factory.mktemp("traffic") / "traffic.json", lambda: NOON)
    gone = came = 0
    for size, inwards in sizes:
        came += size if inwards else 0
        try:
            guard.admit(size, came=inwards)
            gone += 0 if inwards else size
        except PolicyError:
            assert gone + came + (0 if inwards else size) > 100
        assert gone == 0 or gone + came <= 100 + came
    assert gone <= 100
    guard.now = lambda: NOON + timedelta(days=1)
    guard.admit(100)


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[tuple[Any, list[datetime], Path]]:
    """A table whose node 1 has a policy with hours, and the clock that it looks at."""
    now = [NOON]
    with Book(tmp_path / "one", plan_of(PRIVATE)) as book:
        held = table(PRIVATE, {1: book})
        allowed = policy(hours=["11:00-13:00"])
        held.nodes[1]._guard = Guard(allowed, tmp_path / "traffic.json", lambda: now[0])
        yield held, now, tmp_path / "one" / "ledger.jsonl"


def test_a_request_outside_of_hours_is_refused_as_policy_and_charges_nothing(clocked: Any) -> None:
    held, now, ledger = clocked
    now[0] = NOON + timedelta(hours=2)
    (answer,) = held.ask(1, 1, "advertise", b"")

    assert (answer.kind, answer.payload) == (Kind.REFUSAL, b"policy")
    assert not verify(ledger).charged
    now[0] = NOON
    held.play(range(1, 3))
    assert verify(ledger).charged == [1, 2]


def test_a_day_without_room_is_refused_as_policy(tmp_path: Path) -> None:
    held = table(PRIVATE)
    held.nodes[1]._guard = Guard(policy(bytes_a_day=200), tmp_path / "traffic.json", lambda: NOON)
    totals = held.play(range(1, 2))

    assert totals[0].senders == 3
    assert (tmp_path / "traffic.json").exists()


def test_a_budget_that_is_full_is_told_as_policy_and_no_more(tmp_path: Path) -> None:
    def full() -> None:
        raise PolicyError("the policy allows epsilon 4 in all on 'patients', and so on")

    with Book(tmp_path, plan_of(PRIVATE), reserve=full) as book:
        held = table(PRIVATE)
        held.nodes[1] = Node(held.nodes[1].member, book)
        refused: list[str] = []
        held.nodes[1]._reason = lambda error: refused.append(Node._reason(held.nodes[1], error)) or refused[-1]  # type: ignore[method-assign,func-returns-value]
        from tests.deployment.test_node import welcome_to

        held.nodes[1].receive(welcome_to(held.nodes[1], held.ready))
        held.play(range(1, 2))

    assert refused == ["policy"]
    assert not verify(tmp_path / "ledger.jsonl").charged


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a federation of four, with an experiment file."""
    folder = tmp_path_factory.mktemp("site")
    init_federation(folder / "fed")
    add_nodes(folder / "fed", [f"n{number}" for number in range(4)])
    sign_roster(folder / "fed")
    (folder / "experiment.toml").write_text(to_toml({**PRIVATE.tables(), "engine": {"name": "mqtt"}}))
    return folder


def test_nothing_is_read_and_nobody_is_met_if_the_policy_refuses(site: Path) -> None:
    for rules, limits in (({"schemes": []}, {}), ({}, {"patients": {"epsilon_server": 0.01, "delta": 1e-4}})):
        with pytest.raises(PolicyError):
            prepare(
                PRIVATE,
                "mqtt://127.0.0.1:1",
                site / "fed" / "nodes" / "n0",
                "no.such.module:records",  # would be another error, had it been read
                policy=SitePolicy.parse({"rules": rules, "data": limits}),
            )


def test_a_flower_node_has_the_same_policy(site: Path) -> None:
    (site / "none.toml").write_text("[rules]\nschemes = []\n")
    told = {"run": str(site / "experiment.toml"), "keys": str(site / "fed" / "nodes" / "n0"), "data": "no.such:records"}
    with pytest.raises(PolicyError, match="schemes"):
        answers({**told, "policy": str(site / "none.toml")}, [])
    with pytest.raises(InputError, match="does not exist"):
        answers({**told, "policy": str(site / "gone.toml")}, [])


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (None, 2, "does not exist"),
        ("[rules]\nschemes = []\n", 3, "the policy's schemes are none"),
        ("[rules]\nhourz = []\n", 2, "did you mean 'hours'?"),
        ("[rule]\n", 2, "did you mean [rules]?"),
        ("[rules]\nhours = ['25:00-26:00']\n", 2, "HH:MM-HH:MM"),
        ("[rules]\nservers = ['me']\n", 2, "64 hex digits"),
        ("[data.patients]\nepsilon = 1.0\n", 2, "needs delta"),
        ("[data.patients]\nepsilon = -1.0\ndelta = 1e-5\n", 2, "must be above 0"),
        ("[data.'a/b']\n", 2, "name of a data set"),
        ("data = 3\n", 2, "[data.patients]"),
        ("rules = 3\n", 2, "[rules] must be a table"),
        ("[[", 2, "cannot be read"),
    ],
)
@pytest.mark.parametrize("command", ["join", "check"])
def test_a_policy_that_refuses_or_cannot_be_read_is_one_sentence(
    site: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    code: int,
    words: str,
    command: str,
) -> None:
    path, run = tmp_path / "policy.toml", str(site / "experiment.toml")
    if text is not None:
        path.write_text(text)
    keys = str(site / "fed" / "nodes" / "n0")
    typed = ["policy", "check", run]
    if command == "join":
        typed = ["join", "mqtt://127.0.0.1:1", "--run", run, "--keys", keys, "--data", "no.such:records"]

    assert main([*typed, "--policy", str(path)]) == code
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_policy_check_says_beforehand_and_sign_lets_an_experiment_in(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, key = tmp_path / "experiment.toml", tmp_path / "board.key"
    run.write_text((site / "experiment.toml").read_text())
    key.write_text((b"b" * 32).hex())
    key.chmod(0o600)
    rules = tmp_path / "policy.toml"
    rules.write_text(f'[rules]\nsigners = ["{verifying_key(b"b" * 32).hex()}"]\n')
    words = ["policy", "check", str(run), "--policy", str(rules), "--json"]

    assert main(words) == 3
    assert main(["policy", "sign", str(run), "--key", str(key)]) == 0
    assert main(words) == 0 and '"allowed": true' in capsys.readouterr().out
    run.write_text(run.read_text().replace("rounds = 2", "rounds = 3"))
    assert main(words) == 3


def test_a_finer_unit_than_the_limits_are_for_is_refused() -> None:
    rules = SitePolicy.parse({"data": {"patients": {"unit": "person"}}})
    rules.check_unit("patients", "client")
    rules.check_unit("patients", "person")
    with pytest.raises(PolicyError, match="unit person"):
        rules.check_unit("patients", "record")


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.15, 0.9, 1.0, 1.05, 3.0, 7.0, 8.0, 11.0, 30.0])
def test_every_limit_is_reckoned_at_an_order_that_is_known(epsilon: float) -> None:
    limit = DataRule(epsilon=epsilon, delta=1e-3).limit(year=False)

    assert limit is not None and limit.order in renyi_orders()


def test_a_policy_with_several_data_sets_wants_to_know_which() -> None:
    rules = SitePolicy.parse({"data": {"a": {}, "b": {}}})
    assert rules.data_name("b") == "b"
    with pytest.raises(InputError, match="--dataset"):
        rules.data_name(None)
    with pytest.raises(PolicyError, match=r"\[data.c\]"):
        rules.data_name("c")
    assert replace(rules, data={}).data_name(None) == "records"
