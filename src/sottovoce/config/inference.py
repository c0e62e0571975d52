"""The `[inference]` table of an experiment file: what an attacker tries to learn about the clients' records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sottovoce.config.table import Table


class InferenceTable(Table):
    """The `[inference]` table: how `sottovoce infer` attacks the clients' records; a run itself ignores it.

    The first keys are for `infer property`, the others for `infer images` (docs/inference.md).
    """

    property: str = Field(
        "Black",
        description="What the attacker asks about the records of others. The faces (fairface, lfw) know races.",
    )
    share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the records with the property in a batch that has it; a batch without has none. Smaller "
        "shares are harder to see.",
    )
    pairs: int = Field(
        4,
        ge=1,
        description="Updates with the property, and as many without, that the attacker makes from its own records in "
        "each round, to learn from. More take longer and give a better attack.",
    )
    features: Literal["best", "sizes", "values"] = Field(
        "best",
        description='What the attacker looks at. "sizes": the largest of each filter or unit without its sign, as '
        'Melis et al. do. "values": their means with the sign. "best": whichever told more of its own updates apart.',
    )
    classifier: Literal["logistic", "forest"] = Field(
        "logistic",
        description='What the attacker learns with: "logistic" regression, or a random "forest" as Melis et al. do.',
    )
    active: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Weight of the property in the attacker's own training, which makes the common model tell it "
        "apart better. 0: the attacker trains honestly and only looks.",
    )
    sees: Literal["message", "sum"] = Field(
        "message",
        description='What the attacker has to rebuild images from. "message": what one client sends, as a server sees '
        'it without secure aggregation. "sum": the sum of all clients of a round.',
    )
    iterations: int = Field(
        500,
        ge=1,
        description="Steps by which images are rebuilt. More take longer and give sharper images.",
    )
    smoothness: float = Field(
        0.01,
        ge=0,
        description="Weight of smooth images against a good match (total variation). Raise it where messages are noisy "
        "or short.",
    )
    restarts: int = Field(
        1,
        ge=1,
        description="Times that rebuilding starts from another random image; the best match is kept.",
    )
