"""Plan on paper for more clients than anybody simulates: bytes a day at the server, seconds of its CPU, the graph.

A session has at most 65,535 clients, so a larger cohort is cut into sessions of equal size whose sums are added; noise
is shared within each. The server's CPU is what `python -m benchmarks.secagg` measured on two EPYC cores (0.12 s a round
of 100 clients at 8,317 words, 0.53 s at 1,663,370; docs/secure-aggregation.md), taken apart in a part for each
pair of neighbours and a part for each word, and put together for the plan's graph.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from sottovoce.assembly.protection import Protection, protect, threshold
from sottovoce.assembly.stages import TRAINING, ServerSide, stages
from sottovoce.config.experiment import Experiment
from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.core.validate import in_range
from sottovoce.federation.aggregation.aggregator import Fewest
from sottovoce.federation.aggregation.protocols import find_protocol
from sottovoce.federation.cohort import Cohort
from sottovoce.federation.round import downlink_size
from sottovoce.planning.plan import gather_shapes
from sottovoce.planning.signal_to_noise import predicted_signal
from sottovoce.privacy import PrivacyPlan
from sottovoce.privacy.noise.grid import COARSEST, TAIL
from sottovoce.secagg.session import MOST_CLIENTS
from sottovoce.secagg.sizes import Outline, announcement_size

_FEW: Final = (8_317, 0.12)  # words, and seconds of the server for 100 clients on the complete graph
_MANY: Final = (1_663_370, 0.53)
_MEASURED: Final = 100  # clients
PER_WORD: Final = (_MANY[1] - _FEW[1]) / (_MANY[0] - _FEW[0]) / _MEASURED
PER_NEIGHBOUR: Final = (_FEW[1] / _MEASURED - PER_WORD * _FEW[0]) / (_MEASURED - 1)
ROUNDS_A_DAY: Final = 24  # an assumption: one an hour


def server_seconds(clients: int, neighbours: int, length: int) -> float:
    """Return the seconds of CPU of one core that a secure sum takes the server, when nobody drops out.

    >>> round(server_seconds(100, 99, 8_317), 2), round(server_seconds(100, 99, 1_663_370), 2)
    (0.12, 0.53)
    """
    return clients * (neighbours * PER_NEIGHBOUR + length * PER_WORD)


def at_scale(experiment: Experiment, *, clients: int, cohort: int) -> dict[str, Any]:
    """Return what a file's run would take with so many clients, and so many of them in a round, on paper.

    Its delta is lowered to one in as many clients, as a plan of that size asks.
    """
    if experiment.privacy is not None and experiment.privacy.unit != "client":
        raise InputError(
            f'[privacy] unit = "{experiment.privacy.unit}" is planned as it is, without a search over clients; use '
            "sottovoce plan without this option"
        )
    in_range("--scale CLIENTS", clients, low=2, high=10**10)
    in_range("--scale COHORT", cohort, low=2, high=clients)
    parts, _ = gather_shapes(experiment)
    ready = stages(protect(parts))[TRAINING].server_side()
    plan = _planned(ready.plan, clients, cohort)
    length = ready.scheme.length if plan is None else plan.word_length
    bits = _bits(ready, plan, clients, cohort)
    sessions = math.ceil(cohort / MOST_CLIENTS)
    each = math.ceil(cohort / sessions)
    outline, whole = (_outline(ready.protection, number, length, bits) for number in (each, cohort))
    degree = outline.degree
    down = downlink_size(ready.scheme, ready.server.init(parts.start), private=plan is not None)
    up, back = find_protocol("real").costs(outline, down).client
    ballots = find_protocol("ballot").costs(replace(outline, length=ready.scheme.length), down)
    seconds = server_seconds(cohort, degree.neighbours, length)
    return {
        "clients": clients,
        "cohort": cohort,
        "rounds": experiment.experiment.rounds,
        "rounds_a_day": ROUNDS_A_DAY,
        "message_length": length,
        "bits_per_coordinate": bits,
        "bits_estimated": plan is not None and plan.bits is None,
        "sessions_a_round": sessions,
        "clients_a_session": each,
        "neighbours": degree.neighbours,
        "shares_to_open": degree.threshold,
        "neighbours_in_one_graph": whole.degree.neighbours,
        "bytes_up_per_client_round": up,
        "bytes_down_per_client_round": back,
        "bytes_announcement_per_client_round": announcement_size(each),
        "bytes_up_per_client_round_ballots": ballots.client.up,
        "bytes_in_a_day": up * cohort * ROUNDS_A_DAY,
        "bytes_out_a_day": back * cohort * ROUNDS_A_DAY,
        "server_cpu_seconds_a_round": seconds,
        "server_cores": seconds * ROUNDS_A_DAY / 86_400,
        "asked_a_client_and_day": cohort * ROUNDS_A_DAY / clients,
        "epsilon": None if plan is None else plan.describe()["epsilon"],
        "epsilon_server": None if plan is None else plan.describe()["epsilon_server"],
        "epsilon_member": None if plan is None else plan.describe()["epsilon_member"],
        "delta": None if plan is None else plan.request.delta,
        "noise_multiplier": None if plan is None else plan.noise_multiplier,
        "max_participations": None if plan is None else plan.max_participations,
        "signal_to_noise": predicted_signal(plan),
    }


def _planned(plan: PrivacyPlan | None, clients: int, cohort: int) -> PrivacyPlan | None:
    """Solve the file's privacy for another number of clients; what was released before round 1 is left out."""
    if plan is None:
        return None
    request = replace(
        plan.request,
        clients=clients,
        sample_rate=cohort / clients,
        cohort_cap=None,
        cohort_floor=None,
        delta=min(plan.request.delta, 0.99 / clients),
        max_participations=None,
        spent=(),
    )
    try:
        return PrivacyPlan.solve(**vars(request))
    except PrivacyError:
        if request.form == "signs" or request.clipping == "adaptive" or request.mechanism == "gaussian":
            raise
        # Where no grid is fine enough for so large an epsilon_server, the Gaussian itself is planned.
        return PrivacyPlan.solve(**{**vars(request), "mechanism": "gaussian"})


def _bits(ready: ServerSide, plan: PrivacyPlan | None, clients: int, cohort: int) -> int:
    if plan is not None:
        return _modulus(plan) if plan.bits is None else plan.bits
    parts = replace(ready.protection.parts, cohort=Cohort(clients, Fraction(cohort, clients)))
    aggregation = parts.experiment.aggregation.model_copy(update={"secure": "real"})
    masked = replace(parts, experiment=parts.experiment.model_copy(update={"aggregation": aggregation}))
    return Protection(masked).coding(ready.scheme, None).bits


def _modulus(plan: PrivacyPlan) -> int:
    """Return the bits that sums of the largest cohort need on the coarsest grid, as `solve_grid` counts them."""
    radius = COARSEST / plan.noise_multiplier
    return math.ceil(math.log2(2 * (plan.cohort_cap * radius + TAIL * COARSEST + 1)))


def _outline(protection: Protection, clients: int, length: int, bits: int) -> Outline:
    """Return a round of so many clients, with the file's share of them that must stay and that may collude."""
    table = protection.parts.experiment.aggregation
    return Outline(
        clients,
        length,
        bits,
        needed=Fewest(min(threshold(protection.parts), Fraction(1)))(clients),
        colluders=max(table.colluders, int(table.graph_colluders * clients)),
    )
