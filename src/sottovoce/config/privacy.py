"""Tables of an experiment file that protect clients: privacy, aggregation, and who leaves a round."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from sottovoce.config.table import Rate, Table, named
from sottovoce.core.errors import PrivacyError
from sottovoce.core.validate import nearest
from sottovoce.data import is_table
from sottovoce.federation.aggregation.ballots.coding import BallotForm
from sottovoce.federation.aggregation.protocols import PROTOCOLS
from sottovoce.schemes import Scheme
from sottovoce.threats.defences import DEFENCES

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment


class PrivacyTable(Table):
    """The `[privacy]` table: differential privacy for each client, or record of it; without it a run is not private.

    Give epsilon, epsilon_server or noise_multiplier; the noise follows from it. A few sites with a table each set
    unit = "record" (or "person") and epsilon_server.
    """

    unit: Literal["client", "record", "person"] = Field(
        "client",
        description='Who is protected. "client": everything that a client holds; needs hundreds of clients. "record": '
        'each record of the clients, which are then sites such as hospitals; a few are enough. "person": all rows of a '
        "person at one site (docs/records.md).",
    )
    units: Annotated[int, Field(ge=1)] | list[Annotated[int, Field(ge=1)]] | None = Field(
        None,
        description='For unit = "record" or "person": how many of them all sites hold together, or a list with the '
        "number of each site, which is public. Between machines the list is needed, in the order of the roster: each "
        "site compares its own. Not set: as many as there are.",
    )
    unit_rate: Rate = Field(
        Fraction(1),
        gt=0,
        le=1,
        description='For unit = "record" or "person": chance of each to be taken into a round, by a secret coin of its '
        "site. 1, the default, needs the least noise; less saves computing.",
    )
    min_units: int = Field(
        100,
        ge=1,
        description='For unit = "record" or "person": a site with fewer of them is refused.',
    )
    max_rows: int = Field(
        32,
        ge=1,
        le=100_000,
        description='For unit = "person": most rows of one person that a site trains on, the first ones of its file. '
        "The others are left out. It bounds computing, and costs no privacy.",
    )
    epsilon: float | None = Field(
        None,
        ge=1e-3,
        le=1e4,
        description="Privacy budget of the whole run against outsiders, who hold no client and trust the server: "
        "smaller is more private. 1 is strong, 8 is common. Not set: no target, it follows from the noise.",
    )
    epsilon_server: float | None = Field(
        None,
        ge=1e-3,
        le=1e4,
        description="The same budget against the server and the clients that help it, who see who was asked. Needs "
        "more noise, or clients that contribute less often; both targets are kept together (docs/privacy.md). With "
        'unit = "record" or "person" this is the target to set; epsilon follows and is not larger. Not set: no '
        "target; the value reached is printed all the same.",
    )
    noise_multiplier: float | None = Field(
        None,
        ge=0.01,
        le=1e5,
        description="Standard deviation of the noise on the sum, in units of clip_norm (sigma of the papers). Not set: "
        "the smallest that keeps epsilon and epsilon_server. With one of these too, they are budgets: the run stops "
        "when epsilon is spent, and a client contributes as often as epsilon_server affords.",
    )
    delta: float = Field(
        1e-5,
        gt=0,
        lt=1,
        description="Probability with which the promise of epsilon may fail. Below 1 / clients, or the run is refused.",
    )
    accountant: Literal["pld", "rdp", "moments"] = Field(
        "pld",
        description='How epsilon is computed: "pld" gives the smallest true value; "rdp" and "moments" are older and '
        'larger. "moments" is for comparison with the papers.',
    )
    mechanism: Literal["discrete-gaussian", "gaussian"] = Field(
        "discrete-gaussian",
        description='Kind of noise. "discrete-gaussian": integers, safe and needed for a real secure sum. "gaussian": '
        "floating point, for comparison in simulations only.",
    )
    clipping: Literal["fixed", "public", "adaptive", "private"] = Field(
        "fixed",
        description='Where clip_norm comes from. "fixed": from this table. "adaptive": found during the run, '
        'privately; choose it if you know nothing. "public": measured on public records. "private": measured on the '
        "clients, as in the papers, which is not private and needs unsafe_clip_norm.",
    )
    clip_norm: float | None = Field(
        None,
        ge=1e-20,
        le=1e20,
        description="Longest message (L2 norm) that one client may send; longer ones are scaled down. Needed for "
        'clipping = "fixed"; where "adaptive" starts (not set: 1). Schemes that send signs need none.',
    )
    clip_quantile: float = Field(
        0.5,
        ge=0,
        le=1,
        description='For clipping = "adaptive", "public" and "private": share of the clients whose messages are not '
        "scaled down. 0.5 is the median.",
    )
    clip_lr: float = Field(
        0.2,
        gt=0,
        description='For clipping = "adaptive": how fast clip_norm moves from round to round.',
    )
    count_stddev: float | None = Field(
        None,
        gt=0,
        description='For clipping = "adaptive": standard deviation of the noise on the count that moves clip_norm, in '
        "clients. Not set: a twentieth of the expected cohort.",
    )
    max_participations: int | None = Field(
        None,
        ge=1,
        description="Most rounds in which one client contributes; epsilon_server is for so many. Lower it for a "
        "smaller epsilon_server. Not set: with epsilon_server the number that needs the least noise for each draw that "
        "is left, else so many that hardly any client reaches it.",
    )
    vote_noise_multiplier: float | None = Field(
        None,
        ge=0.01,
        le=1e5,
        description="Let the clients choose the coordinates of fl-top or fl-top-bis by a private vote before round 1, "
        "with this noise; the vote is paid from the budget. Not set: coordinates come from public records.",
    )
    warm_noise_multiplier: float | None = Field(
        None,
        ge=0.01,
        le=1e5,
        description="Noise of the message before round 1 that [scheme] warm_start asks for, in units of its clip norm; "
        "the rounds get what it leaves of the budget. Needed for a warm start.",
    )
    whiten_share: float = Field(
        0.12,
        gt=0,
        lt=1,
        description="For [model] whiten: the share of the budget that its message gets, as shares of 1 / z^2; the "
        "rounds get the rest.",
    )
    evaluation_noise_multiplier: float | None = Field(
        None,
        ge=0.01,
        le=1e5,
        description='Noise of each measurement by clients ([experiment] evaluation = "federated"), in units of its '
        "clip norm, the root of 3; all measurements are paid from the budget beforehand. Needed for them, and only for "
        'them. With unit = "record" or "person" it may be left out: those who are measured on have an account of their '
        "own, and the noise is the least that keeps the targets.",
    )
    grid: Literal["solved", "papers"] = Field(
        "solved",
        description='Step between neighbouring integers of a message. "solved": the fewest bits that keep the promise. '
        '"papers": a step of 1, for schemes that send signs only.',
    )
    bits: int | None = Field(
        None,
        ge=2,
        le=30,
        description="Bits for each value of a message. Not set: as few as are needed. More bits make a finer grid.",
    )
    budget: str | None = Field(
        None,
        description="File that counts all private runs on the same records. Each run reserves what its plan costs "
        "there before anything is released; the sum is printed. The first run makes it (docs/privacy.md, Several "
        "runs). Not set: other runs on the same records add to this one, and nobody counts them.",
    )
    budget_epsilon: float | None = Field(
        None,
        ge=1e-3,
        le=1e4,
        description="For budget: epsilon against outsiders that all runs together may cost, fixed when the file is "
        "made. A run that would exceed it is refused before training. Not set: that of the file, or no limit.",
    )
    budget_epsilon_server: float | None = Field(
        None,
        ge=1e-3,
        le=1e4,
        description="For budget: the same against the server and the clients that help it. Not set: that of the file, "
        "or no limit.",
    )
    budget_delta: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="For budget_epsilon and budget_epsilon_server: the delta of all runs together. Half of it is for "
        "runs whose epsilons and deltas are added. Not set: that of the file, or twice the delta of the run that makes "
        "it.",
    )
    population: str | None = Field(
        None,
        min_length=1,
        description="Name of the people whose records these are; runs with the same name add up, whatever their "
        "records are today. Not set: the name of [data] source.",
    )
    spent: list[dict[str, int | float | str]] | None = Field(
        None,
        description="What was released about these people before and is in no budget file, such as [{epsilon = 1.0, "
        'delta = 1e-5}, {noise_multiplier = 1.2, sample_rate = "1/60", rounds = 200}]. It is added to the sum over '
        "runs, once a file, and does not change the noise of this run. Not set: nothing.",
    )
    unsafe_delta: bool = Field(
        False,
        description="Allow a delta of 1 / clients and above, which permits publishing somebody's data outright.",
    )
    unsafe_clip_norm: bool = Field(
        False,
        description='Allow clipping = "private", whose look at the clients\' norms epsilon does not cover.',
    )
    unsafe_public: bool = Field(
        False,
        description='Allow "public" records taken from the clients\' own data, which epsilon does not cover.',
    )
    unsafe_preprocessing: bool = Field(
        False,
        description="Allow scales, categories, a vocabulary or a number of classes that are taken from the clients' "
        "records, which epsilon does not cover; a schema, or [data] classes, makes it unnecessary.",
    )
    unsafe_test: bool = Field(
        False,
        description="Allow measurements on test or held-out records that were cut from the clients' own, which epsilon "
        "does not cover; a file in [data] test, or clients that measure, make it unnecessary.",
    )

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        for number, entry in enumerate(self.spent or (), start=1):
            _check_release(entry, f"[privacy] spent, entry {number}")
        for key in ("budget_epsilon", "budget_epsilon_server", "budget_delta"):
            if getattr(self, key) is not None and self.budget is None:
                raise ValueError(
                    f'[privacy] {key} is a limit for all runs in a budget file, and none is named; set budget = "FILE"'
                )
        return self


_LONGEST: Final = 100  # letters of a number
_RANGES: Final = {
    "delta": (1e-100, 0.999),
    "sample_rate": (1e-12, 1),
    "noise_multiplier": (0.01, 1e7),  # below, no accountant tells anything
    "rounds": (1, 1e7),
}
_RELEASE: Final = ("epsilon", "epsilon_server", "delta", "noise_multiplier", "sample_rate", "rounds")


def _check_release(entry: dict[str, Any], where: str) -> None:
    for key, value in entry.items():
        if key not in _RELEASE:
            guess = nearest(key, _RELEASE)
            hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(_RELEASE)}"
            raise ValueError(f"{where} has no key {key!r}; {hint}")
        shown = repr(value) if len(str(value)) <= _LONGEST else "a longer text"
        low, high = _RANGES.get(key, (1e-12, 1e7))
        try:
            if len(str(value)) > _LONGEST or ("/" not in str(value) and not low <= float(value) <= high):
                raise OverflowError  # before a fraction is made of it, which takes long for 1e-99999999
            number = Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"{where}: {key} must be a number, got {shown}") from None
        except OverflowError:
            number = Fraction(-1)
        if not low <= float(number) <= high or (key == "rounds" and number.denominator > 1):
            what = "a whole number" if key == "rounds" else "a number"
            raise ValueError(f"{where}: {key} must be {what} in [{low:g}, {high:g}], got {shown}")
    if ("epsilon" in entry) == ("noise_multiplier" in entry):
        raise ValueError(f"{where} needs either epsilon, or noise_multiplier with sample_rate and rounds")
    own = ("epsilon", "epsilon_server", "delta") if "epsilon" in entry else _RELEASE[2:]
    for key in entry:
        if key not in own:
            raise ValueError(f"{where} has {own[0] if own[0] in entry else own[1]}, and no use for {key}; remove it")


class AggregationTable(Table):
    """The `[aggregation]` table: how messages are summed, and what the server sees of single clients."""

    secure: Annotated[str | None, named(PROTOCOLS)] = Field(
        None,
        description='"none": the server sees each message. "ideal": it is given the sum only, as if by a trusted '
        'party. "real": the cryptographic protocol is run, with all its bytes. "ballot": each client sends one bit a '
        "value to two aggregators that do not collude and add the noise, so that nobody has more than one vote "
        '(docs/ballots.md); "ideal-ballot": the same count by a trusted party. Not set: "ideal" in a private run, else '
        '"none".',
    )
    ballot: Literal["sign", "stochastic", "rotated"] | None = Field(
        None,
        description='For ballots: how a value becomes one bit. "sign": its sign. "stochastic": a coin whose mean is '
        'the value, up to clip_norm / sqrt(values). "rotated": the same after a random rotation that is new in every '
        'round. Not set: "sign" for schemes that send signs, else "rotated".',
    )
    helper: str | None = Field(
        None,
        description='For secure = "ballot" between machines: where the helper listens, such as "notary.example:8900" '
        "(`sottovoce count`). Only `sottovoce serve` reads it, and it does not change the result. Not set: `serve` "
        "refuses ballots; `run` starts a helper of its own.",
    )
    weighting: Literal["auto", "records", "equal"] = Field(
        "auto",
        description='What a client counts in the mean: "records" by the number of its records, "equal" the same for '
        'all, "auto" as the scheme\'s paper has it. A private run and one with a defence always take "equal".',
    )
    defence: Annotated[str, named(DEFENCES, "none")] = Field(
        "none",
        description="What the server takes in place of the mean of the updates, so that malicious clients cannot move "
        'it far (docs/defences.md). It looks at single updates, so it needs secure = "none"; every client counts the '
        "same. Signs need none: the majority vote of fl-sign is its defence.",
    )
    defence_attackers: Rate = Field(
        Fraction(1, 5),
        gt=0,
        lt=1,
        description="For defence: share of a cohort that is taken to be malicious, rounded up to whole clients (f of "
        "n). More costs accuracy and needs larger cohorts.",
    )
    defence_bound: float | None = Field(
        None,
        gt=0,
        description='For defence = "norm-bound": longest update (L2 norm); longer ones are scaled down. Not set: the '
        "median of the norms of each round.",
    )
    threshold: Rate | None = Field(
        None,
        gt=0,
        description="How many of a cohort must stay to the end, or the round is given up. Up to 1 it is a share (2/3 "
        "of n clients means floor(2n/3) + 1), above 1 a number. More than half. Not set: 2/3.",
    )
    answer_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Least chance of each client that is asked to answer to the end of a round, whatever others do, "
        "such as 0.98. In a private run rounds with too few answers are charged by it (docs/privacy.md). Not set: in a "
        "simulation it follows from [devices], and is 1 where nobody leaves; where nobody knows it, as between "
        "machines, epsilon is null.",
    )
    colluders: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Clients of a cohort that may help the server or leave out their noise; the others add enough "
        "noise for them too.",
    )
    graph_colluders: Rate = Field(
        Fraction(1, 3),
        ge=0,
        le=1,
        description='For secure = "real" with more than 200 clients in a cohort: share of helpers of the server that '
        "the choice of neighbours must withstand.",
    )
    neighbours: int = Field(
        0,
        ge=0,
        description='For secure = "real": clients with whom each client shares secrets. 0: everyone up to 200 clients, '
        "above that as many as safety needs. The size of the cohort protects even from a server that lies.",
    )
    key_life: Literal["round", "session"] = Field(
        "round",
        description='For secure = "real": "round" makes new keys in every round (five phases); "session" makes them '
        "once (three phases a round), and needs every client in every round.",
    )
    noise: Literal["each", "joint"] = Field(
        "each",
        description='For ballots: "each": leader and helper each add noise, and only the other\'s hides a client from '
        'one of them. "joint": they toss coins together that neither knows, and epsilon_server is as low as epsilon of '
        "one noise (docs/ballots.md).",
    )
    largest: float = Field(
        4.0,
        gt=0,
        description="For a secure sum that is not private: largest size of a single value in a message. Raise it if a "
        "message says that it is outside; a smaller one rounds more finely.",
    )


def ballot_form(experiment: Experiment) -> BallotForm:
    """Return how values become votes: as the file says, or as suits the scheme."""
    if experiment.aggregation.ballot is not None:
        return experiment.aggregation.ballot
    return "sign" if experiment.make_scheme().form == "signs" else "rotated"


def check_ballots(experiment: Experiment, scheme: Scheme) -> None:
    """Raise if ballots cannot be cast with the other tables; ValueError is one sentence of the config's."""
    secure, form, protocol = experiment.secure, experiment.aggregation.ballot, experiment.protocol
    key = f'[aggregation] secure = "{secure}"'
    if experiment.aggregation.helper is not None and not protocol.needs_helper:
        raise ValueError(f'[aggregation] helper is for secure = "ballot", and it is "{secure}"; remove it')
    if not protocol.counts_votes:
        if experiment.aggregation.noise != "each":
            raise ValueError(
                f'[aggregation] noise = "joint" is for secure = "ballot" or "ideal-ballot", and it is "{secure}"; '
                "remove it"
            )
        if form is not None:
            raise ValueError(f'[aggregation] ballot is for secure = "ballot" or "ideal-ballot", and it is "{secure}"')
        return
    if experiment.engine.name == "flower" and protocol.needs_helper:
        raise ValueError(f'{key} needs a helper, which a Flower fleet has no place for; use MQTT, or secure = "real"')
    if experiment.privacy is None:
        raise PrivacyError(f"{key} hides ballots in the noise of two aggregators, and this run has none; add [privacy]")
    if scheme.once or not (scheme.linear or scheme.form == "signs"):
        raise ValueError(f"{key} counts votes of one bit, which {scheme.name} cannot learn from; choose another scheme")
    if scheme.form == "signs" and form not in (None, "sign"):
        raise ValueError(f'[aggregation] ballot = "{form}" needs values, but {scheme.name} sends signs; remove it')
    table = experiment.privacy
    for other, wrong in (
        ("[privacy] vote_noise_multiplier", table.vote_noise_multiplier is not None),
        ("[scheme] warm_start", experiment.scheme.warm_start is not None),
        ("[privacy] bits", table.bits is not None),
        ('[privacy] grid = "papers"', table.grid == "papers"),
        ('[privacy] mechanism = "gaussian"', table.mechanism == "gaussian"),
        ('[privacy] clipping = "adaptive"', table.clipping == "adaptive"),
    ):
        if wrong:
            raise ValueError(f"{key} knows nothing but ballots of one bit a value; remove {other}")
    servers = 1 if experiment.switches is None else experiment.switches.servers
    if servers != 1:
        raise ValueError(f"{key} has two aggregators of its own; remove [switches] servers")
    threat = experiment.threat
    if threat is not None and threat.boost not in (None, 1):
        raise ValueError(
            f"[threat] boost = {threat.boost:g} cannot be said in the one bit that a ballot has for each value; "
            "remove it"
        )


def unit_defaults(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the defaults of a file that protects records or persons, where they differ from those of the tables.

    Every site is asked in every round, each unit takes one gradient step, and the server's step follows from the plan.
    """
    scheme, server = (table if isinstance(table := tables.get(name), Mapping) else {} for name in ("scheme", "server"))
    name = scheme.get("name", "fl-std")
    found: dict[str, dict[str, Any]] = {
        "cohort": {"sample_rate": 1},
        "client": {"local_steps": 1, "batch_size": "all", "client_lr": 1.0},
        "data": {"centred": True},
    }
    if server.get("optimizer", "sgd") == "sgd" and name != "fl-once":  # which takes no steps
        found["server"] = {"lr": "auto"} | ({"momentum": 0.9} if name == "fl-std" else {})
    if name not in ("fl-sign", "sign-sgd", "fl-once"):
        found["privacy"] = {"clip_norm": 1.0}
    return found


def head_defaults(tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the defaults of a private file that trains a model on a front's features and says nothing of how.

    They follow from the length of features, 1 / 0.3, and the server's rate from N (`federation/units.py`). Who sets a
    clip norm, a clipping, a server's or a client's rate chooses all of them: then there are none.
    """
    names = ("model", "scheme", "server", "client", "privacy", "aggregation", "cohort", "experiment")
    found: dict[str, Any] = {name: table if isinstance(table := tables.get(name), Mapping) else {} for name in names}
    if not isinstance(tables.get("privacy"), Mapping) or found["privacy"].get("unit", "client") != "client":
        return {}
    front = found["model"].get("front", "none")
    features = found["model"].get("whiten", False) or front not in ("none", "gabor")
    chosen = found["privacy"].keys() & {"clip_norm", "clipping"} | found["server"].keys() & {"lr", "optimizer"}
    chosen |= found["client"].keys() & {"client_lr", "optimizer"}
    ballots = "ballot" in str(found["aggregation"].get("secure"))
    if not features or chosen or ballots or found["scheme"].get("name", "fl-std") != "fl-std":
        return {}
    return {
        "experiment": {"rounds": 20},
        "cohort": {"sample_rate": 1},
        "client": {"local_steps": 5, "batch_size": 64, "client_lr": 2.88},
        "server": {"lr": "auto", "momentum": 0.5, "schedule": "linear", "average": 0.8},
        "privacy": {"clip_norm": 0.3},
    }


def check_units(experiment: Experiment, scheme: Scheme) -> None:
    """Raise if a run that protects records or persons would be no sum over them, or would mix them."""
    table = experiment.privacy
    if table is None:
        return
    if table.unit == "client":
        for name in ("units", "unit_rate", "min_units", "max_rows"):
            if getattr(table, name) != PrivacyTable.model_fields[name].default:
                raise ValueError(f'[privacy] {name} is for unit = "record" or "person"; set unit, or remove it')
        return
    key = f'[privacy] unit = "{table.unit}"'
    _check_persons(experiment, table, key)
    _check_site_units(table)
    if experiment.protocol.counts_votes:
        raise ValueError(f'{key} sums over the {table.unit}s of a site, and a ballot is one bit a site; use "real"')
    for name, reason in _no_sums(experiment, scheme, table).items():
        raise ValueError(f"{key} is not played with {name}: {reason}; remove it")


def _no_sums(experiment: Experiment, scheme: Scheme, table: PrivacyTable) -> dict[str, str]:
    """Return what is no sum over units in which each depends on its own rows alone, and why."""
    client, unit = experiment.client, table.unit
    cases = (
        (scheme.everyone, f'[scheme] name = "{scheme.name}"', "its clients keep what earlier rounds left over"),
        (
            _centred(scheme, experiment.make_warm()),
            "record_norm",
            "moments are then about the mean of one's own rows, and whoever has one row adds nothing",
        ),
        (table.clipping != "fixed", "[privacy] clipping", "clip norms are adapted or measured for whole clients only"),
        (
            table.max_participations is not None,
            "[privacy] max_participations",
            "every round is charged, whichever sites take part",
        ),
        (experiment.cohort.cap is not None, "[cohort] cap", f"who is asked does not depend on a {unit}"),
        (client.balanced is not False, "[client] balanced", f"it looks at the labels of all {unit}s of a site"),
        (client.momentum != 0, "[client] momentum", f"each {unit} begins anew in every round, so that none mixes"),
        (
            bool(client.held_out) and experiment.evaluation != "federated",
            "[client] held_out",
            f'what is told of {unit}s that are set aside needs noise, by [experiment] evaluation = "federated"',
        ),
        (client.personal_steps != 0, "[client] personal_steps", "a personal model is of a site, and without noise"),
        (experiment.data.augment > 1, "[data] augment", "copies of a record would be further records"),
        (experiment.data.partition == "virtual", '[data] partition = "virtual"', "two sites may hold one record"),
        (experiment.server.guard != "none", "[server] guard", "it knows how long sums of clients are, not of sites"),
        (experiment.threat is not None, "[threat]", "its attacks are those of clients"),
        (experiment.switches is not None, "[switches]", "they change which records a client has from round to round"),
        (experiment.engine.data is not None, "[engine] data", f"{unit}s are counted where the run is gathered"),
    )
    return {name: reason for wrong, name, reason in cases if wrong}


def _centred(*schemes: Scheme | None) -> bool:
    return any(scheme is not None and getattr(scheme, "record_norm", None) is not None for scheme in schemes)


def _check_persons(experiment: Experiment, table: PrivacyTable, key: str) -> None:
    data = experiment.data
    if table.unit == "record":
        if table.max_rows != PrivacyTable.model_fields["max_rows"].default:
            raise ValueError('[privacy] max_rows is for unit = "person"; set unit, or remove it')
        return
    if is_table(data.source, data.folder) and data.person is None:
        raise ValueError(
            f"{key} protects all rows of a person, and [data] person does not say which column names it; set it"
        )
    if data.partition not in ("iid", "by-id"):
        raise ValueError(
            f'{key} is not played with [data] partition = "{data.partition}", which deals rows by their labels and '
            'would tear persons apart; use "iid" or "by-id"'
        )
    if data.records_per_client is not None:
        raise ValueError(f"{key} is not played with [data] records_per_client: sites get whole persons; remove it")


def _check_site_units(table: PrivacyTable) -> None:
    """Raise if the declared number of a site's units is too small."""
    for site, number in enumerate(table.units if isinstance(table.units, list) else ()):
        if number < table.min_units:
            raise ValueError(
                f"[privacy] min_units is {table.min_units}, but units says that site {site} holds {number} "
                f"{table.unit}s; leave it out, join it with another site, or lower min_units"
            )


def check_defence(experiment: Experiment, scheme: Scheme) -> None:
    """Raise if a defence cannot be combined with the other tables; ValueError is one sentence of the config's."""
    table = experiment.aggregation
    key = f'[aggregation] defence = "{table.defence}"'
    if table.defence_bound is not None and table.defence != "norm-bound":
        raise ValueError(f'[aggregation] defence_bound is for defence = "norm-bound", not "{table.defence}"; remove it')
    if table.defence == "none":
        return
    if experiment.privacy is not None:
        raise ValueError(
            f"{key} judges single updates, but in a private run the server may see only their sum: one client's share "
            'of the noise does not protect it; remove defence (a private run has [server] guard = "energy") or '
            "[privacy]"
        )
    if experiment.protocol.hides_updates:
        raise ValueError(
            f"{key} judges single updates, but a secure sum shows the server no single update, and so nobody who is "
            'out of line; set [aggregation] secure = "none" or remove defence'
        )
    if scheme.form == "signs":
        raise ValueError(
            f"{key} compares values, but {scheme.name} sends signs, whose majority vote already is a defence: nobody "
            "counts for more than one vote; remove defence"
        )
    if scheme.once or experiment.scheme.warm_start is not None:
        name = scheme.name if scheme.once else f'[scheme] warm_start = "{experiment.scheme.warm_start}"'
        raise ValueError(
            f"{key} judges the updates of a cohort, but {name} asks all clients at once for sums over their records; "
            "remove one of them"
        )
    if table.weighting == "records":
        raise ValueError(
            f"{key} counts every client the same, because a malicious one may claim any number of records; remove "
            "[aggregation] weighting"
        )
