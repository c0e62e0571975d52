"""The table of an experiment file that says what the server does with the mean message."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from sottovoce.config.table import Table


class ServerTable(Table):
    """The `[server]` table: what the server does with the mean message besides the scheme; nothing by default.

    It sees only what was released, so it costs no privacy.
    """

    optimizer: Literal["sgd", "adam", "yogi", "adagrad"] = Field(
        "sgd",
        description='Rule of the server\'s step: "sgd" takes the scheme\'s own; "adam", "yogi" and "adagrad" (FedAdam, '
        "FedYogi, FedAdagrad) adapt it to each parameter. Not for schemes that send signs.",
    )
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description='For optimizer = "sgd": weight of the earlier rounds in the server\'s step. 0.9 often speeds up '
        "training; 0 is none.",
    )
    lr: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        1.0,
        description="Factor on the server's step. With sgd, 1 takes the mean message as it is; lower it when noise is "
        'large. Left out, it is 0.01 for adam and yogi and 0.1 for adagrad. "auto", for [privacy] unit = "record" '
        'or "person" and the default there: it follows from rounds, noise and the number of units (docs/records.md). '
        "In private runs on features of a front or a whitening it follows from clients and clip norm "
        "(docs/whitening.md).",
    )
    beta1: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="For adam, yogi and adagrad: weight of the past in the mean of the steps. Not set: 0.9, and 0 for "
        "adagrad.",
    )
    beta2: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="For adam and yogi: weight of the past in the mean of the squared steps. Not set: 0.99.",
    )
    tau: float | None = Field(
        None,
        gt=0,
        description="For adam, yogi and adagrad: added to the root of the squared steps, so that steps far below it "
        "are not enlarged. Not set: 0.001.",
    )
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant",
        description='How lr changes over the rounds: "constant", or falling to near 0 in a straight line ("linear") or '
        'slowly at first ("cosine").',
    )
    average: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Weight of the past in a running mean of the models, which is then measured and kept in place of "
        "the last model. 0.9 smooths the noise of a private run; 0 keeps no mean.",
    )

    guard: Literal["none", "energy"] = Field(
        "none",
        description='"energy": refuse a private round whose sum is longer than honest clients and the known noise can '
        "make it. It reads only what is released, and costs no privacy.",
    )
    guard_bound: float | None = Field(
        None,
        gt=0,
        description="For guard: longest honest sum, in clip norms (B). Not set: 0.6 of the expected cohort. Smaller "
        "leaves attackers less and refuses honest rounds sooner.",
    )
    guard_width: float = Field(
        4.0,
        ge=0,
        description="For guard: standard deviations of the estimate that are tolerated above the bound (k).",
    )

    @property
    def step_keys(self) -> dict[str, Any]:
        """Return the keys of the step that the server takes, without those of the guard."""
        return self.model_dump(exclude={"guard", "guard_bound", "guard_width"})

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Fill in the defaults of the chosen optimizer, so that a written config is complete."""
        optimizer = given.get("optimizer", "sgd") if isinstance(given, dict) else "sgd"
        if optimizer == "sgd":
            return given
        from sottovoce.federation.optimise import DEFAULT_LR, DEFAULTS

        if optimizer not in DEFAULTS:
            return given
        return {"lr": DEFAULT_LR[optimizer], **DEFAULTS[optimizer], **given}
