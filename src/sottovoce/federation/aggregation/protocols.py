"""Every aggregation protocol by its name in `[aggregation] secure`; its file is imported when it is asked for."""

from __future__ import annotations

from typing import Final

from sottovoce.core.registry import Registry
from sottovoce.federation.aggregation.aggregator import AggregationProtocol
from sottovoce.secagg.session import KeyLife

PROTOCOLS: Final[Registry[type[AggregationProtocol]]] = Registry(
    "aggregation protocol",
    "sottovoce.aggregators",
    {
        "none": "sottovoce.federation.aggregation.direct:PlainSum",
        "ideal": "sottovoce.federation.aggregation.direct:IdealSum",
        "real": "sottovoce.federation.aggregation.secure:MaskedSum",
        "ballot": "sottovoce.federation.aggregation.ballots.count:BallotCount",
        "ideal-ballot": "sottovoce.federation.aggregation.ballots.count:IdealBallotCount",
    },
    base=AggregationProtocol,
    labels=("name",),
    key="[aggregation] secure",
)


def find_protocol(name: str, key_life: KeyLife = "round") -> type[AggregationProtocol]:
    """Return a protocol with keys of this life, where it has keys of both."""
    protocol = PROTOCOLS[name]
    return next((variant for variant in protocol.variants() if variant.key_life == key_life), protocol)
