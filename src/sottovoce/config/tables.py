"""Tables of an experiment file that say what is trained, on what and by whom; those on privacy are re-exported."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from sottovoce.config.data import DataTable
from sottovoce.config.devices import DevicesTable
from sottovoce.config.engine import EngineTable
from sottovoce.config.inference import InferenceTable
from sottovoce.config.model import EncoderTable, ModelTable, ProjectionTable
from sottovoce.config.privacy import AggregationTable, PrivacyTable
from sottovoce.config.server import ServerTable
from sottovoce.config.table import Rate, Table
from sottovoce.config.threat import ThreatTable
from sottovoce.data import DOWN, OVER, WEIGHTED
from sottovoce.schemes import Scheme

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment

__all__ = [
    "AggregationTable",
    "ClientTable",
    "CohortTable",
    "DataTable",
    "DevicesTable",
    "EncoderTable",
    "EngineTable",
    "GeneralTable",
    "InferenceTable",
    "ModelTable",
    "PrivacyTable",
    "ProjectionTable",
    "SchemeTable",
    "ServerTable",
    "Table",
    "ThreatTable",
    "check_once",
]


class GeneralTable(Table):
    """The `[experiment]` table: the name of a run, its seed, and how long it takes."""

    name: str = Field(
        "experiment",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the run. Its results go to the folder runs/<name> unless --out says otherwise.",
    )
    seed: int = Field(
        1,
        ge=0,
        lt=2**63,
        description="Start of all random numbers. The same seed gives the same model, bit for bit; change it to see "
        "how much a result depends on chance.",
    )
    rounds: int = Field(
        100,
        ge=1,
        description="Number of training rounds. In a round the server asks some clients to train, and adds up their "
        "answers. More rounds usually give a better model, and cost more bytes and more privacy.",
    )
    evaluate_every: int = Field(
        10,
        ge=1,
        description="Rounds between two measurements of the model on the test records; the last round is always "
        "measured. Raise it if measuring takes longer than training.",
    )
    checkpoint_every: int = Field(
        10,
        ge=1,
        description="Rounds between two saved states. A run that was interrupted goes on from the last of them with "
        "--resume.",
    )
    patience: int = Field(
        0,
        ge=0,
        description="Stop early after this many measurements on held-out records without a new best; needs [data] "
        'held_out, or evaluation = "federated", whose measurements count then. 0 never stops early.',
    )
    evaluation: Literal["server", "federated", "none"] | None = Field(
        None,
        description='Who measures the model. "server": the server, on test records of its own. "federated": a cohort '
        "of clients, each on records that it keeps out ([client] held_out); the server learns the mean by the same "
        'secure sum, with noise in a private run ([privacy] evaluation_noise_multiplier). "none": nobody; then no '
        'round is the best one. Not set: "server", and "none" in a private run whose test records would be cut from '
        "the clients' own.",
    )
    least_rounds: float = Field(
        0,
        ge=0,
        le=1,
        description="Least share of rounds in which enough clients answered. A run below it ends with exit code 4, and "
        "its model is not to be used; so does a run that learned in no round, whatever is set here.",
    )
    loggers: list[str] = Field(
        [],
        description='Loggers that show the run in another tool, such as ["tensorboard"] (or "wandb", "mlflow"), and '
        "those of installed packages (docs/loggers.md). Of a private run they see what may be published.",
    )
    chosen_on: str | None = Field(
        None,
        description="Data set on which the settings of this file were chosen, for the reader of the results; "
        "`sottovoce tune` writes it. Not set: nobody said.",
    )


class ClientTable(Table):
    """The `[client]` table: how a client trains on its own records."""

    local_steps: int = Field(
        5,
        ge=1,
        description="Steps of training that a client takes in a round. More steps need fewer rounds, until the "
        "clients' models drift apart.",
    )
    batch_size: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        10,
        description='Records in one step, drawn at random; a client with fewer uses what it has. "all": every record '
        "in every step.",
    )
    client_lr: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        0.1,
        description="Learning rate of the client: how far one step moves the model. Lower it if the loss grows or "
        'becomes null. "auto", the default of a squared loss: 1 / (1 + values that the model reads), at most 0.1. '
        "Steps of that size do not diverge where a record's values have a mean square of 1 or less.",
    )
    optimizer: Literal["sgd", "adam"] = Field(
        "sgd",
        description='Rule of a step: "sgd" (the papers\') or "adam", whose state starts anew in every round.',
    )
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description='For optimizer = "sgd": weight of the earlier steps of the same round. 0 is plain SGD.',
    )
    adam_epsilon: float = Field(
        1e-8,
        gt=0,
        description='For optimizer = "adam": added to the root of the squared gradients. 1e-7 is that of Keras, with '
        "which the papers were made.",
    )
    prox: float = Field(
        0.0,
        ge=0,
        description="FedProx: adds prox / 2 * |w - w_t|^2 to the loss, where w_t is the model the client was sent. "
        "Holds clients with unlike records together; 0 is off, 0.01 to 1 are usual.",
    )
    balanced: bool | Literal["down-sampling", "over-sampling", "weighted-loss"] = Field(
        False,
        description="Let each client balance its classes, for medical data with few positive records. true or "
        '"down-sampling": it keeps as many records of each class as of its rarest. "over-sampling": it repeats records '
        'until each class has as many as its most frequent. "weighted-loss": records of rare classes count more.',
    )
    held_out: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of its own records that each client keeps out of its training, to measure the final model "
        "client by client (docs/optimisers.md). 0.2 is usual; 0 keeps none out and measures nothing.",
    )
    personal_steps: int = Field(
        0,
        ge=0,
        description="Steps that each measured client trains the final model further on its own records, to see what a "
        "personal model would gain; needs held_out. 0 trains none.",
    )
    trainer: Literal["auto", "torch", "fast"] = Field(
        "auto",
        description='Code that trains: "fast" (our C kernels, CPU only), "torch", or "auto", which takes "fast" where '
        "it knows every layer.",
    )
    device: str = Field(
        "cpu",
        description='Where "torch" trains: "cpu", or a GPU such as "cuda" or "cuda:1".',
    )

    @property
    def sampled(self) -> str | None:
        """Return how records are chosen to balance classes; None if all are taken as they are."""
        return None if self.balanced in (False, WEIGHTED) else OVER if self.balanced == OVER else DOWN


class CohortTable(Table):
    """The `[cohort]` table: which clients are asked in a round."""

    sampling: Literal["poisson", "fixed"] = Field(
        "poisson",
        description='How a cohort (the clients of a round) is drawn. "poisson": each client by a coin of its own, so '
        'the size varies. "fixed": always the same number. Under privacy "poisson" needs less noise.',
    )
    sample_rate: Rate = Field(
        Fraction(1, 10),
        gt=0,
        le=1,
        description="Chance of each client to be asked in a round, or the share that is asked. Larger cohorts give a "
        "steadier sum and cost more bytes.",
    )
    cap: int | None = Field(
        None,
        ge=1,
        description='For sampling = "poisson": most clients in a round; a larger draw is cut at random. Not set: no '
        "cap, or in a private run one so high that it hardly ever matters. A low cap costs privacy.",
    )
    floor: int | None = Field(
        None,
        ge=2,
        description="Least clients in a round of a secure sum; every client insists on it. A smaller draw is sent "
        "home: its round is lost, and in a private run looks like any other. Not set: half of the expected cohort, at "
        "least 3 and the colluders; in a private run what delta can pay for (docs/privacy.md). Below 3 and the "
        "colluders a deployed run is refused.",
    )


class SchemeTable(Table):
    """The `[scheme]` table: how updates are made small, and the public records that some schemes need.

    A scheme has keys of its own beside these.
    """

    name: str = Field(
        "fl-std",
        description='Scheme by which updates travel; "sottovoce schemes" lists them. A scheme of your own is named '
        '"module:Class".',
    )
    public: str | None = Field(
        None,
        description="Data set of public records, for schemes that choose their coordinates once (fl-top, fl-top-bis) "
        'for [privacy] clipping = "public" and for [aggregation] defence = "fltrust". Not set: some training records '
        "are set aside, which a private run refuses.",
    )
    public_samples: int = Field(
        10,
        ge=1,
        description="Number of public records that are used. Data with rare classes needs more (356 for diabetes130), "
        'and so does defence = "fltrust" (100 in its paper).',
    )
    public_batch: int | None = Field(
        None,
        ge=1,
        description="Public records in each step of choosing coordinates. Not set: all of them in every step, as in "
        "the papers.",
    )
    public_steps: int = Field(
        5,
        ge=1,
        description="Training steps after which coordinates are chosen, on public records or, in a private vote, on "
        "each client's own (T_init of the papers).",
    )
    train: str = Field(
        "all",
        description='Layers that train and travel: "all", "head" (the last one) or "layers: fc1, fc2" (by name: conv1, '
        "conv2, ... and fc1, fc2, ... from below). The others keep their first values; the scheme sees only what "
        "trains.",
    )
    downlink_bits: Literal[16, 32] = Field(
        32,
        description="Bits of each weight that clients are sent. 16 halves the bytes down: clients train from a rounded "
        "model, and the server adds their updates to its own, which is not rounded.",
    )
    warm_start: Literal["fl-once"] | None = Field(
        None,
        description="Begin at a model that every client helps to solve for in one message before round 1, for "
        'name = "logistic" under [model]. In a private run it is paid from the budget ([privacy] '
        "warm_noise_multiplier). Not set: training begins at w_0.",
    )
    warm_keys: dict[str, Any] = Field(
        default_factory=dict,
        description="Keys of the scheme that finds the warm start, such as {record_norm = 1.0}; those left out have "
        "their defaults.",
    )
    keys: dict[str, Any] = Field(
        default_factory=dict,
        description="The scheme's own keys; in a file they stand in [scheme] itself.",
    )


def check_once(experiment: Experiment, scheme: Scheme) -> None:
    """Raise if nobody trains, and a table says how to train; or if training cannot start where it should."""
    if scheme.once:
        _check_one_message(experiment, scheme)
    if experiment.scheme.warm_start is not None:
        _check_warm_start(experiment, scheme)
    elif experiment.scheme.warm_keys:
        raise ValueError("[scheme] warm_keys are for a warm start, and there is none; set warm_start, or remove them")
    elif experiment.privacy is not None and experiment.privacy.warm_noise_multiplier is not None:
        raise ValueError(
            "[privacy] warm_noise_multiplier is the noise of a warm start, and there is none; set [scheme] warm_start, "
            "or remove it"
        )


def _check_one_message(experiment: Experiment, scheme: Scheme) -> None:
    rounds = experiment.experiment.rounds
    if rounds != 1:
        raise ValueError(f"{scheme.name} takes one round, but [experiment] rounds is {rounds}; set it to 1")
    for key, field in ServerTable.model_fields.items():
        if getattr(experiment.server, key) != field.default:
            raise ValueError(f"{scheme.name} solves for its model, and [server] {key} changes steps; remove it")
    if experiment.privacy is not None and experiment.privacy.clipping == "adaptive":
        raise ValueError(
            f'{scheme.name} takes one round, in which [privacy] clipping = "adaptive" finds nothing; remove it: the '
            "clip norm follows from public numbers"
        )
    if experiment.threat is not None:
        raise ValueError(f"{scheme.name} does not train, and [threat] is about clients that do; remove it")


def _check_warm_start(experiment: Experiment, scheme: Scheme) -> None:
    key = f'[scheme] warm_start = "{experiment.scheme.warm_start}"'
    experiment.make_warm()  # refuses keys that it does not have
    if scheme.once:
        raise ValueError(f"{key} is for schemes that train, and {scheme.name} does not; remove it")
    if scheme.needs_start:
        raise ValueError(
            f"{key} begins at another model than w_0, but the clients of {scheme.name} know weights from w_0 alone; "
            "use a scheme that sends the model, such as fl-std"
        )
    if experiment.threat is not None:
        raise ValueError(f"{key} asks clients that do not train yet, and [threat] is about those who do; remove one")
    if experiment.privacy is None:
        return
    if experiment.privacy.warm_noise_multiplier is None:
        raise ValueError(
            f"{key} is one more release of a private run; set [privacy] warm_noise_multiplier, its noise, for example "
            "to 8"
        )
    if experiment.privacy.vote_noise_multiplier is not None:
        raise ValueError(f"{key} and a vote would both be round 0; remove one of them")
