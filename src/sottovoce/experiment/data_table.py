"""The `[data]` table of an experiment file."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from sottovoce.experiment.table import Table

if TYPE_CHECKING:
    from sottovoce.experiment.config import Experiment

__all__ = ["DataTable", "check_data"]

# `[data] schema` hides a deprecated method of pydantic's that nobody calls here.
warnings.filterwarnings("ignore", message='Field name "schema" in "DataTable" shadows', category=UserWarning)


class DataTable(Table):
    """The `[data]` table: which records there are, and how they are dealt out to clients."""

    source: str = Field(
        "digits",
        description='Name of a data set ("sottovoce data" lists them), or the path of a file of your own '
        "(docs/data.md).",
    )
    folder: str | None = Field(
        None,
        description='Folder in which the data set is looked for first. Not set: the usual places, which "sottovoce '
        'data path" prints.',
    )
    label: str | None = Field(
        None,
        description="Of a table (.csv): the column with the classes. Not set: the source is no table.",
    )
    id: str | None = Field(
        None,
        description='Of a table: the column that says whose a record is, for partition = "by-id". Not set: owners are '
        "not known.",
    )
    split: str | None = Field(
        None,
        description='Of a table: a column of "train" and "test". Not set: a fifth is set aside for tests; '
        "in a private run only with test_public.",
    )
    test: str | None = Field(
        None,
        description="File with the test records, of the same form as the source: a table (.csv), or x and y (.npz). "
        "No client gets them, and epsilon does not cover them. Not set: the test records of the source; of a table, "
        "see split and test_public.",
    )
    test_public: bool = Field(
        False,
        description="Declare that the test records that are cut from a table are public. Where id names owners, whole "
        "owners are set aside. A private run measures on such records only if this is true (docs/privacy.md).",
    )
    schema: str | None = Field(  # type: ignore[assignment]
        None,
        description="Of a table: a TOML file that says what the columns are (docs/data.md). Not set: that is taken "
        "from the training records, which a private run refuses.",
    )
    clients: int = Field(
        100,
        ge=1,
        description="Number of clients among whom the training records are divided.",
    )
    partition: Literal["iid", "dirichlet", "shards", "by-id", "hospitals", "virtual"] = Field(
        "iid",
        description='How records are divided. "iid": equal random shares. "dirichlet": clients differ in their '
        'classes (see concentration). "shards": a few pieces of the records sorted by class (see shards_per_client). '
        '"by-id": each owner in the data is one client. "hospitals": equal shares with at least one positive record '
        'each. "virtual": each client draws its records when it is asked, for very many clients; two may hold the '
        "same record.",
    )
    concentration: float = Field(
        0.5,
        gt=0,
        description='For partition = "dirichlet": how alike clients are. Small values give each client few classes; '
        "large ones approach equal shares.",
    )
    shards_per_client: int = Field(
        2,
        ge=1,
        description='For partition = "shards": pieces for each client. Fewer pieces mean fewer classes on a client.',
    )
    records_per_client: int | None = Field(
        None,
        ge=1,
        description='For partition = "iid" and "virtual": records that each client holds. Not set: all records are '
        'divided ("iid"), or 10 each ("virtual").',
    )
    pools: int = Field(
        1,
        ge=1,
        description='For partition = "virtual": pools into which the records are divided; client k draws from pool k '
        "mod pools alone. 1: every client draws from all records. A multiple of the machines lets each hold only the "
        "pools of its own clients (docs/ray.md).",
    )
    augment: int = Field(
        1,
        ge=1,
        le=1000,
        description="Of images: how many times as many train records there are after shifted and mirrored copies are "
        "added, 10 for CIFAR-10 in the papers. Copies of a record may go to several clients. 1 adds none.",
    )
    held_out: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the training records that no client gets and that early stopping (patience) measures on. "
        "0.1 is usual; 0 sets nothing aside. In a private run they are the clients', and need unsafe_test.",
    )
    shape: list[Annotated[int, Field(ge=1)]] | None = Field(
        None,
        min_length=1,
        max_length=3,
        description="For records that only the nodes of a deployed run hold: the shape of one of them, such as "
        "[28, 28, 1] for an image (height, width, channels) or [14] for a row of features. Not set: that of the "
        "source. Needs classes.",
    )
    classes: int | None = Field(
        None,
        ge=2,
        description="Number of classes of an npz file of your own, or of records that only nodes hold (with shape). A "
        "private run needs it for such a file, because labels that are counted tell of single clients. Not set: that "
        "of the source.",
    )
    scale: float | None = Field(
        None,
        gt=0,
        description="For records that only nodes hold: what stored values are multiplied by before the model reads "
        "them, such as 0.00392157 (1/255) for images of 8 bits. Not set: 1. Needs shape.",
    )
    mean_records: float | None = Field(
        None,
        ge=1,
        description="The mean number of records that a client trains with, if it is public. Between machines "
        '[aggregation] weighting = "records" needs it. A private run on your own records estimates work and joules by '
        "it. Not set: every client counts the same, and estimates assume a batch, or ten records.",
    )


def check_data(experiment: Experiment) -> None:
    """Raise if keys contradict each other."""
    table = experiment.data
    if table.pools > 1 and table.partition != "virtual":
        raise ValueError('[data] pools is for partition = "virtual"; set that, or remove pools')
    if table.test is not None and table.split is not None:
        raise ValueError("[data] test and split both say which records are for tests; remove one")
    if table.test_public and (table.test is not None or table.split is not None):
        raise ValueError(
            "[data] test_public is about test records that are cut from the clients', and test or split names others; "
            "remove one"
        )
    if table.test is not None and table.shape is not None:
        raise ValueError("[data] test is for simulations; between machines the server tests with the records of source")
    if table.shape is not None and table.classes is None:
        raise ValueError("[data] shape is given without classes; records of nodes need both")
    if table.scale is not None and table.shape is None:
        raise ValueError("[data] scale is of records that only nodes hold; set shape and classes too, or remove it")
