"""What a round, a run and a plan tell, key by key, with the meaning of each.

These are the tables of docs/run-folder.md and docs/planning.md, which are generated from here: `sottovoce explain
rounds`, `explain summary` and `explain plan` print them, `--markdown` as the docs have them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple, TypedDict, get_type_hints

from sottovoce.models import METRICS


class Key(NamedTuple):
    """What a key of a record means, and in which file, or when, it is there."""

    meaning: str
    where: str = ""


_BOTH: Final = "both"
_ROUNDS: Final = "rounds"
_OPERATOR: Final = "operator; not private: rounds"
_ATTACKED: Final = "rounds, under attack"
_MACHINES: Final = "between machines"
_SIMULATED: Final = "both, with a [device](devices.md) profile"
_EACH_CLIENT: Final = "operator, the object with `round` null; not private: `summary.json`"

Bytes = dict[str, dict[str, int]]  # by phase: up and down
Joules = dict[str, Any]  # low, default, high, and the same of the parts


class RoundRecord(TypedDict, total=False):
    """One line of `rounds.jsonl` or `operator.jsonl`; metrics of `models/metrics.py` stand beside these keys."""

    round: Annotated[
        int | None,
        Key("from 1; `operator.jsonl` has the vote before round 1 as 0, and what is told of the end as null", _BOTH),
    ]
    bytes_up: Annotated[
        int,
        Key(
            "bytes that all clients together sent. `rounds.jsonl` of a private run: the expected value, equal in every "
            "round; elsewhere what was really sent",
            _BOTH,
        ),
    ]
    bytes_down: Annotated[int, Key("the same of what they received", _BOTH)]
    epsilon: Annotated[
        float | None,
        Key(
            "the plan's, against outsiders, for all of its rounds: the same in every line; null if not private, and "
            "between machines after a failure that outsiders could see",
            _ROUNDS,
        ),
    ]
    epsilon_spent: Annotated[
        float | None,
        Key(
            "spent up to and with this round: an odometer reading, no guarantee ([privacy.md](privacy.md), *When a run "
            "ends early*); null where `epsilon` is",
            _ROUNDS,
        ),
    ]
    clip_norm: Annotated[float, Key("adaptive clipping: the next norm", _ROUNDS)]
    aborted: Annotated[
        bool,
        Key(
            "true if nothing was released. Not in a private run between machines: there a round without quorum is "
            "opened from noise, charged, and looks like any other",
            _ROUNDS,
        ),
    ]
    evaluation: Annotated[
        dict[str, Any],
        Key(
            "the measurement by clients after this round: `cohort`, `senders`, bytes and what went wrong, as of a "
            "round",
            'operator, with `[experiment] evaluation = "federated"`',
        ),
    ]
    intervals: Annotated[
        dict[str, Any],
        Key(
            "an interval of 95 % for each metric that sites measured on their records or persons: noise, and the "
            "chance of who was set aside; null where the noise hides the metric",
            'rounds, with `[experiment] evaluation = "federated"` and `unit` "record" or "person"',
        ),
    ]
    sums: Annotated[
        dict[str, Any],
        Key(
            "the noisy sums that these follow from: `counts` of records of each class, how many of them were answered "
            "`right`, `histograms` of the scores of both classes with the `edges` of their bins, and the `stddev` of "
            "the noise",
            'rounds, with `[experiment] evaluation = "federated"` and `unit` "record" or "person"',
        ),
    ]
    void: Annotated[
        bool,
        Key(
            "true if the round was open when the server stopped: its number is used up, it stays charged if it was, "
            "and "
            "the model did not change",
            f"both, {_MACHINES}",
        ),
    ]
    rounds_without_quorum: Annotated[
        int, Key("how many rounds had too few answers since the server was started", f"operator, {_MACHINES}")
    ]
    rejected: Annotated[
        bool,
        Key("true if the guard refused the round: it was released and charged, and the model did not change", _ROUNDS),
    ]
    accuracy_by_class: Annotated[
        list[float | None], Key("accuracy on each class; null for a class without test records", _ATTACKED)
    ]
    class_accuracy: Annotated[
        float | None,
        Key(
            "of the test records of the attacked class, the share that is recognised; null if the attack has no target",
            _ATTACKED,
        ),
    ]
    attack_success: Annotated[
        float | None, Key("of the same records, the share that is taken for the target; null likewise", _ATTACKED)
    ]
    diverged: Annotated[
        bool,
        Key(
            "true if the model measured in this round is at the level of guessing, or gives no finite scores", _ATTACKED
        ),
    ]
    cohort: Annotated[int, Key("clients asked", _OPERATOR)]
    senders: Annotated[int, Key("messages summed", _OPERATOR)]
    seconds: Annotated[float, Key("duration", _OPERATOR)]
    phases: Annotated[Bytes, Key("secure aggregation: bytes `up` and `down` by phase", _OPERATOR)]
    seconds_simulated: Annotated[
        float,
        Key(
            "duration of the round on the clients' devices. `rounds.jsonl` of a private run: the expected one, equal "
            "in "
            "every round; elsewhere that of the cohort",
            _SIMULATED,
        ),
    ]
    joules_per_client: Annotated[
        Joules | None,
        Key(
            "energy of one client that takes part: `low`, `default`, `high`, and the same of its parts `radio_bytes`, "
            "`radio_sessions`, `training`; expected values in `rounds.jsonl` of a private run; null if nobody took "
            "part",
            _SIMULATED,
        ),
    ]
    dropouts: Annotated[
        dict[str, int],
        Key(
            'cause ("link", "deadline", "availability", "surplus") to the number of clients lost',
            f"{_OPERATOR}; with a device profile",
        ),
    ]
    wire_up: Annotated[
        int,
        Key(
            "bytes that came in on the server's connection to the broker since the round before, with signatures, "
            "MQTT, TLS, TCP and IP; absent where the system does not count them",
            f"{_OPERATOR}; of a [federation](deploy.md)",
        ),
    ]
    wire_down: Annotated[int, Key("the same of what went out", f"{_OPERATOR}; of a federation")]
    bytes_between_servers: Annotated[
        int,
        Key(
            "bytes of the partial sums that the servers told each other",
            "rounds, with `[switches] servers` of 2 or more",
        ),
    ]
    left_for_good: Annotated[
        int,
        Key(
            "clients that have left for good by now, because they had converged",
            "rounds, with `[switches] leave_within`",
        ),
    ]
    failures: Annotated[dict[str, str], Key("client to what went wrong", _OPERATOR)]
    reason: Annotated[str, Key("why a round was aborted", _OPERATOR)]
    client_accuracy_mean: Annotated[
        float | None,
        Key(
            "the final model on what each client kept out: the mean over clients, see [optimisers.md](optimisers.md), "
            "*Client by client*",
            _EACH_CLIENT,
        ),
    ]
    client_accuracy_worst_tenth: Annotated[float | None, Key("the mean over the worst tenth of them", _EACH_CLIENT)]
    client_accuracy_worst: Annotated[float | None, Key("the worst of them", _EACH_CLIENT)]
    client_accuracy_clients: Annotated[int, Key("how many clients kept records out", _EACH_CLIENT)]
    personal_accuracy_mean: Annotated[
        float | None, Key("the same after `personal_steps` of training on a client's own records: mean", _EACH_CLIENT)
    ]
    personal_accuracy_worst_tenth: Annotated[float | None, Key("its worst tenth", _EACH_CLIENT)]
    personal_accuracy_worst: Annotated[float | None, Key("its worst", _EACH_CLIENT)]


class CostRecord(TypedDict, total=False):
    """Keys that a plan and the summary of a run share."""

    scheme: Annotated[str, Key("name of the scheme")]
    private: Annotated[bool, Key("whether clients are promised an epsilon")]
    secure: Annotated[str, Key("how messages are summed, as `[aggregation] secure` says")]
    rounds: Annotated[int, Key("rounds of the plan; of a run those that were played, aborted and void ones counted")]
    clients: Annotated[int, Key("clients of the federation")]
    expected_cohort: Annotated[float, Key("clients that a round is expected to ask")]
    cohort_floor: Annotated[int | None, Key("least cohort of a secure sum; null where the server sees each message")]
    cohort_floor_note: Annotated[str | None, Key("a warning if that is too small to hide a client, else null")]
    front: Annotated[str, Key('the public [front](fronts.md), or "none"')]
    projection: Annotated[
        dict[str, Any] | None,
        Key("what the front was fitted on: `source`, `synthetic`, `dims`, and its `bytes` in the set-up"),
    ]
    train: Annotated[str, Key("`[scheme] train`")]
    parameters: Annotated[int, Key("parameters of the whole network, of which `dim` train")]
    dim: Annotated[int, Key("parameters that train")]
    message_length: Annotated[int, Key("values of one client's message")]
    bits_per_coordinate: Annotated[int, Key("bits of one value as it travels")]
    ballot: Annotated[str | None, Key("with [ballots](ballots.md): how a value becomes one bit")]
    epsilon: Annotated[
        float | None,
        Key("the guarantee against outsiders: the plan's, however many rounds are played; null if there is none"),
    ]
    epsilon_server: Annotated[
        float | None, Key("the guarantee against the server; with [ballots](ballots.md) against either aggregator")
    ]
    delta: Annotated[float | None, Key("the delta of both")]
    unit: Annotated[str | None, Key("who is protected: `client`, `record` or `person`; null if the run is not private")]
    units: Annotated[int | None, Key("records or persons of all sites, which is public; null where clients are meant")]
    unit_rate: Annotated[float | None, Key("chance of a record or person to be taken into a round")]
    epsilon_site: Annotated[float | None, Key("for records and persons: the guarantee against another site")]
    noise_multiplier: Annotated[float | None, Key("noise of a round in clip norms")]
    privacy: Annotated[
        dict[str, Any] | None,
        Key(
            "all of the privacy plan; `unsafe` names the unsafe keys in use, `cost` (of a run) is what sums over runs "
            "are computed from, `request` (of a run) what the plan is solved from again, `digest` its hash in the "
            "ledger; with ballots `epsilon_both_aggregators` is null: both together have no bound"
        ),
    ]
    epsilon_under_attack: Annotated[
        float | None,
        Key(
            "private, with a `[threat]`: what holds for honest clients while malicious ones add no noise; null where "
            "there is no bound"
        ),
    ]
    epsilon_server_under_attack: Annotated[float | None, Key("the same against the server")]
    votes: Annotated[
        float | None,
        Key(
            "A (influence), of a private run: a cheating client that adds no noise weighs as much as A honest ones, "
            "though every message is checked; 1 with ballots"
        ),
    ]
    bytes_up_per_client_round: Annotated[
        float | None, Key("bytes that a client sends in a round; the expected value in a plan and in a private run")
    ]
    bytes_down_per_client_round: Annotated[float | None, Key("the same of what it receives")]
    bytes_up_total: Annotated[int, Key("bytes up of all clients and rounds")]
    bytes_down_total: Annotated[int, Key("bytes down of all clients and rounds")]
    bytes_setup_per_client: Annotated[int, Key("bytes of the set-up, which each client receives once")]
    bytes_enrolment_per_client: Annotated[
        dict[str, int] | None, Key("session keys: what a client sends (`up`) and receives (`down`) to enrol, once")
    ]
    bytes_vote_up_total: Annotated[int | None, Key("bytes up of the vote for coordinates; null without one")]
    bytes_vote_down_total: Annotated[int | None, Key("bytes down of that vote")]
    bytes_per_client_phase: Annotated[
        Bytes,
        Key(
            "phase of a round to the bytes `up` and `down` that one client of the expected cohort has in it; expected "
            "values in every run, they follow from the configuration alone"
        ),
    ]
    secure_overhead_up_bytes_per_client_round: Annotated[
        float | None, Key("what real secure aggregation adds to the packed vector")
    ]
    secure_expansion: Annotated[float | None, Key("bytes up over those of the packed vector")]
    warm_start: Annotated[
        dict[str, Any] | None,
        Key("with `[scheme] warm_start`: what the start before round 1 comes to; null if there is none"),
    ]
    whitening: Annotated[
        dict[str, Any] | None,
        Key("with `[model] whiten`: what the message before round 1 comes to; null if there is none"),
    ]
    joules_per_client: Annotated[
        Joules | None,
        Key(
            "with a [device](devices.md) profile: energy of one client in one round in which it takes part, as in "
            "`rounds.jsonl`, on average; else null"
        ),
    ]
    joules_per_client_run: Annotated[
        Joules | None,
        Key("with a device profile: that, times the rounds that a client is expected to take part in, and the set-up"),
    ]
    seconds_simulated: Annotated[
        float | None,
        Key("with a device profile: simulated seconds of all rounds, which begin at least `round_every` apart"),
    ]
    devices: Annotated[
        Any,
        Key(
            "of a run with a device profile: profiles and their shares; of a plan joules (low, default, high), seconds "
            "and memory on each: those of `[devices]`, or some usual ones side by side"
        ),
    ]
    dropouts: Annotated[
        dict[str, Any],
        Key(
            "of a run with a device profile: lost clients by cause, not in a private run; of a plan how many may "
            "leave, "
            "how often a round is lost at the devices' or the file's chance of leaving, and what that costs in noise"
        ),
    ]


class Summary(CostRecord, total=False):
    """`summary.json`: what came out of a run, and what it cost; each summarised metric as `NAME_final`, `NAME_best`."""

    statistics: Annotated[
        dict[str, Any] | None,
        Key("with `[statistics]`: the answers with intervals, group by group; null if too few sites answered"),
    ]
    own_metrics: Annotated[
        list[str],
        Key(
            "only with metrics of one's own ([tasks.md](tasks.md)): their names, for keys `NAME_final` and `NAME_best`"
        ),
    ]
    name: Annotated[str, Key("name of the experiment")]
    weighting: Annotated[str, Key('whether clients count alike ("equal") or by their "records"')]
    chosen_on: Annotated[
        str | None,
        Key("the data on which the settings were chosen, as `[experiment] chosen_on` says; null if nobody said"),
    ]
    rounds_planned: Annotated[int, Key("rounds of the experiment")]
    stopped_early: Annotated[bool, Key("whether fewer rounds were played")]
    aborted_rounds: Annotated[int, Key("rounds that released nothing")]
    budget_spent: Annotated[bool, Key("private: whether the budget ended the run")]
    deployed: Annotated[
        bool, Key("between machines: true; false if all secrets followed from a seed (`--simulate-randomness`)")
    ]
    trial: Annotated[
        bool,
        Key("between machines: true for `serve --local`, whose records and keys are all on one machine"),
    ]
    void_rounds: Annotated[int, Key("between machines: rounds that were open when the server stopped")]
    test_data: Annotated[
        str,
        Key("on which records the model was measured, and whose they are ([privacy.md](privacy.md), *Test records*)"),
    ]
    baseline_accuracy: Annotated[
        float | None,
        Key(
            "accuracy of always giving the most frequent answer, on the test records; null where `quality_reason` says "
            "why ([quality.md](quality.md))"
        ),
    ]
    verdict: Annotated[
        str | None, Key("the sentence that says that the final model is no better than that; null if it is better")
    ]
    quality: Annotated[
        dict[str, Any] | None,
        Key(
            "of the final model on the test records: `records`, `accuracy`, `baseline` (`answer`, `accuracy`), "
            "`verdict` and what to `try`, bootstrap `intervals` of the metrics at `level`, `classes`, "
            "`accuracy_by_class`, `worst_class`, `confusion` (rows: what records are, columns: what they are taken "
            "for), `sensitivity` and `specificity` (two classes), `calibration_error` and its bins `calibration`, and "
            "the decision `threshold` of the best balanced accuracy (`probability`, `chosen_on`), or null and "
            "`threshold_reason`; by the values of [data] subgroup and by site `subgroups` and `sites` (`column`, "
            "`groups`, the `worst`, the mean of the worst tenth), or null and `subgroups_reason`, `sites_reason`. "
            "Where sites measured, all of it follows from noisy sums, and `noise` says so"
        ),
    ]
    quality_reason: Annotated[str | None, Key("why `quality` is null, or null")]
    measurements: Annotated[
        dict[str, Any],
        Key(
            'with `[experiment] evaluation = "federated"`: how many the clients make at `most`, and in a private run '
            "the `noise_multiplier`, the `epsilon` and `epsilon_server` that all of them cost (both are in the run's), "
            "and `accuracy_stddev`, the noise on a measured accuracy; their bytes are in no total. Of records or "
            "persons: how many `units` were set aside, whose `account` is their own, and the `intervals` of the last "
            "measurement"
        ),
    ]
    best_round: Annotated[int | None, Key("the round with the best value of `selected_by`")]
    selected_by: Annotated[str, Key("the metric that chose the best round")]
    epsilon_reason: Annotated[
        str | None, Key("private: why `epsilon` is null, or null ([privacy.md](privacy.md), *Quorum*)")
    ]
    epsilon_not_against: Annotated[
        str,
        Key(
            "private, between machines: against whom `epsilon` never holds ([privacy.md](privacy.md), *Between "
            "machines*)"
        ),
    ]
    epsilon_best_round: Annotated[
        float | None, Key("the same number as `epsilon`, because choosing a round looks at all of them")
    ]
    epsilon_spent: Annotated[float | None, Key("what the charged rounds cost so far")]
    epsilon_spent_note: Annotated[str, Key("the sentence that says why that is no guarantee")]
    note: Annotated[str | None, Key("what a reader of the guarantee must not miss")]
    epsilon_population: Annotated[
        float | None,
        Key(
            "private: what all runs on the same records cost together against outsiders, as far as `[privacy] budget` "
            "and `spent` know; null without them"
        ),
    ]
    epsilon_server_population: Annotated[float | None, Key("the same against the server")]
    delta_population: Annotated[float | None, Key("the delta of both")]
    population: Annotated[
        dict[str, Any] | None,
        Key(
            "the `name`, the `budget` file, the number of `runs`, the part of the limit that is `spent`, the `method`, "
            "and the sum `if_fixed_in_advance` ([privacy.md](privacy.md), *Several runs*)"
        ),
    ]
    paper_cost_up_bytes: Annotated[float, Key("the papers' formula, for comparison: bytes up of a client")]
    paper_cost_down_bytes: Annotated[float, Key("the papers' formula: bytes down")]
    quantisation_step: Annotated[float, Key("where values are rounded to a grid: its step")]
    quantisation_error_at_most: Annotated[float, Key("the largest error of a mean by that grid")]
    seconds: Annotated[float | None, Key("duration; null in a private run")]
    failures: Annotated[int, Key("answers of clients that failed; not in a private run")]
    defence: Annotated[str | None, Key("the defence of `[aggregation]`; null if there is none")]
    rejected_rounds: Annotated[int, Key("with a guard: rounds that it refused")]
    left_for_good: Annotated[int, Key("with `[switches] leave_within`: clients that left for good")]
    bytes_between_servers_total: Annotated[
        int, Key("with `[switches] servers` of 2 or more: bytes that servers told each other")
    ]
    public: Annotated[str, Key("the public records that a scheme used, in words")]
    public_records: Annotated[int, Key("how many of them were used, after balancing")]
    vote: Annotated[dict[str, Any], Key("with a private vote for the coordinates: its noise and what it cost")]
    attack: Annotated[str, Key("with a `[threat]` table: the attack")]
    attack_fraction: Annotated[float, Key("share of malicious clients")]
    attack_of: Annotated[str, Key("whom the share is of, as `[threat] of` says")]
    attack_boost: Annotated[
        float | None, Key("by how much a malicious update is stretched; null: it depends on the round")
    ]
    attack_source: Annotated[int | None, Key("the attacked class")]
    attack_target: Annotated[int | None, Key("the class that its records are to be taken for")]
    attack_success_final: Annotated[
        float | None, Key("share of attacked records that are taken for the target, final model")
    ]
    attack_success_best: Annotated[float | None, Key("the same at the best round of the model, as in the papers")]
    class_accuracy_final: Annotated[float | None, Key("accuracy on the attacked class, final model")]
    class_accuracy_best: Annotated[float | None, Key("the same at the best round")]
    accuracy_by_class_final: Annotated[list[float | None] | None, Key("accuracy on each class, final model")]
    diverged: Annotated[
        bool, Key('under attack: true if the last measurement was; `report` then shows a "-" for every accuracy')
    ]
    thesis: Annotated[
        dict[str, Any],
        Key(
            "of `fl-sign`: what the thesis proves, for this run. `theorem_3`: `epsilon_slack`, the most that integers "
            "instead of real noise add to the moments accountant's epsilon by Lemma 4, and `log10_kappa`, `log10_nu` "
            "behind it. `theorem_6`: the mean of the gradient's L1 norm over the rounds is at most "
            "(`tau_factor_sampling` + `tau_factor_privacy`) times the L1 norm of the gradients' standard deviations "
            "plus `descent_per_unit_of_loss` times the loss that is left to lose; it is proved for one local step, a "
            "batch as large as the number of rounds, and a smooth loss. Null where the thesis proves nothing: "
            "`theorem_3` of a run that is not private, `theorem_6` under other attacks than random updates"
        ),
    ]
    client_accuracy_mean: Annotated[
        float | None,
        Key(
            "with `[client] held_out`, not in a private run: the final model on what each client kept out, mean over "
            "clients; null if no client kept a record out"
        ),
    ]
    client_accuracy_worst_tenth: Annotated[float | None, Key("the mean over the worst tenth of them")]
    client_accuracy_worst: Annotated[float | None, Key("the worst of them")]
    client_accuracy_clients: Annotated[int, Key("how many clients kept records out")]
    personal_accuracy_mean: Annotated[
        float | None, Key("with `[client] personal_steps`: the same after training further on a client's own records")
    ]
    personal_accuracy_worst_tenth: Annotated[float | None, Key("its worst tenth")]
    personal_accuracy_worst: Annotated[float | None, Key("its worst")]
    client_accuracy_note: Annotated[
        str, Key("that not all clients were measured, or that a private run does not publish the above")
    ]


class PlanRecord(CostRecord, total=False):
    """`sottovoce plan --json`: what an experiment will cost."""

    model: Annotated[str, Key("name of the network")]
    records_per_client: Annotated[
        dict[str, Any],
        Key(
            "smallest, median and largest number of records of a client; null, with the `reason`, where that is private"
        ),
    ]
    bytes_up_per_round: Annotated[int, Key("bytes up of all clients in a round")]
    bytes_down_per_round: Annotated[int, Key("bytes down of all clients in a round")]
    bytes_per_client_total: Annotated[
        float,
        Key(
            "one client over the whole run, as often as it is expected to take part; set-up, vote and warm start "
            "included"
        ),
    ]
    participations_per_client: Annotated[float, Key("how often that is")]
    wire_bytes_per_client_round: Annotated[
        int, Key("what a client's link carries in a round between machines, with TLS, MQTT and acknowledgements")
    ]
    wire_factor: Annotated[float, Key("how many times that is of the bytes up and down")]
    slowest_link: Annotated[
        dict[str, Any] | None,
        Key(
            "how long a round takes at least on `[engine] slowest_link`, which phases do not fit into the time-outs "
            "there (`misfits`), and what would do better (`advice`); null if none is declared"
        ),
    ]
    paper_cost_up_bytes_all_rounds: Annotated[float, Key("the papers' formula for all rounds: bytes up of a client")]
    paper_cost_down_bytes_all_rounds: Annotated[float, Key("the papers' formula for all rounds: bytes down")]
    real_bytes_up_per_client_round: Annotated[
        int | None,
        Key(
            "bytes up of the real protocol, whatever the file asks for; null, with `real_refused`, where it cannot "
            "be had"
        ),
    ]
    real_bytes_down_per_client_round: Annotated[int | None, Key("bytes down of the real protocol")]
    real_neighbours: Annotated[int | None, Key("clients with which each client masks in it")]
    real_refused: Annotated[str | None, Key("why it cannot be had, or null")]
    phases: Annotated[Bytes | None, Key("the real protocol's bytes by phase")]
    if_session_keys: Annotated[
        dict[str, Any] | None, Key("what [session keys](secure-aggregation.md) would make of it")
    ]
    if_ballots: Annotated[
        dict[str, Any] | None,
        Key("what ballots would make of it: one bit a value, `ceil(d/8) + 144` bytes, one message"),
    ]
    ways: Annotated[
        list[dict[str, Any]] | None,
        Key("three ways to sum side by side, see below; null if the run is not private"),
    ]
    epsilon_member: Annotated[float | None, Key("the guarantee against another client of the federation")]
    signal_to_noise: Annotated[
        dict[str, Any] | None,
        Key(
            "predicted, see below; null where there is no noise. Of records or persons also `units_needed`: how many "
            "the same epsilon needs for a signal of 1 and of 10 times the noise"
        ),
    ]
    expected_accuracy: Annotated[
        dict[str, float] | None,
        Key("with `--plain-accuracy`, of a private run: what to expect with noise, `low` to `high`; else null"),
    ]
    measurements: Annotated[
        dict[str, Any] | None, Key("what clients measure, and what that costs, as in the summary; null if they do not")
    ]
    most_per_coordinate: Annotated[
        float | None, Key("by how much one client can move a value, [defences.md](defences.md)")
    ]
    guard_radius: Annotated[float | None, Key("what the energy guard still lets pass")]
    gflop_per_client_round: Annotated[float, Key("GFLOP of a client's local training")]
    memory_mb: Annotated[float, Key("the least memory that it needs")]
    estimated: Annotated[
        list[str],
        Key(
            "keys that are estimates without `--measure`: the size of a fitted projection (from 500 public records, "
            "up to "
            "3 % off), sizes of clients whose labels are not on this machine"
        ),
    ]
    limits: Annotated[dict[str, Any], Key("the number that each limit of `--solve` is compared with")]
    seconds_per_round: Annotated[float | None, Key("of this machine, with `--measure` only")]
    seconds_total: Annotated[float | None, Key("of this machine, with `--measure` only")]


RECORDS: Final[dict[str, type]] = {"rounds": RoundRecord, "summary": Summary, "plan": PlanRecord}


def record_keys(name: str) -> dict[str, Key]:
    """Return the keys of "rounds", "summary" or "plan" with their meanings, those of the metrics included.

    >>> record_keys("rounds")["cohort"].meaning
    'clients asked'
    """
    kind = RECORDS[name]
    keys = {key: hint.__metadata__[0] for key, hint in get_type_hints(kind, include_extras=True).items()}
    for metric, each in METRICS.items():
        only = ", with two classes" if each.binary else ""
        if name == "rounds":
            keys[metric] = Key(f"{each.words} on the test records{only}", "rounds that are evaluated")
            keys[f"held_out_{metric}"] = Key(
                f"the same on the records that `[data] held_out` set aside{only}", "rounds that are evaluated"
            )
        elif name == "summary" and each.summarised:
            keys[f"{metric}_final"] = Key(f"{each.words} of the final model{only}; null if it was not measured")
            keys[f"{metric}_best"] = Key(f"{each.words} of the best round{only}")
    return keys


def keys_markdown(name: str) -> str:
    """Return the table of docs/run-folder.md, or docs/planning.md, of these keys.

    A plan's leaves out what the summary has too.
    """
    keys = record_keys(name)
    if name == "plan":
        keys = {key: told for key, told in keys.items() if key not in CostRecord.__annotations__}
    where = any(told.where for told in keys.values())
    lines = ["| key | in | meaning |", "|---|---|---|"] if where else ["| key | meaning |", "|---|---|"]
    for key, told in keys.items():
        cells = [f"`{key}`", *([told.where] if where else []), told.meaning]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
