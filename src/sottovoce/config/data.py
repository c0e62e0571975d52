"""The `[data]` table of an experiment file."""

from __future__ import annotations

import warnings
from glob import has_magic
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard

from pydantic import Field, model_validator

from sottovoce.config.table import Table
from sottovoce.core.errors import SottovoceError
from sottovoce.data import is_table, table_files

if TYPE_CHECKING:
    from sottovoce.config.experiment import Experiment

# `[data] schema` hides a deprecated method of pydantic's that nobody calls here.
warnings.filterwarnings("ignore", message='Field name "schema" in "DataTable" shadows', category=UserWarning)


class DataTable(Table):
    """The `[data]` table: which records there are, and how they are dealt out to clients."""

    source: str | list[str] = Field(
        "digits",
        description='Name of a data set ("sottovoce data" lists them), or the path of a file of your own '
        "(docs/data.md). Several tables with the same columns, one a site: a list of paths, a pattern such as "
        '"hospital_*.csv", or a folder (docs/tables.md).',
    )
    folder: str | None = Field(
        None,
        description='Folder in which the data set is looked for first. Not set: the usual places, which "sottovoce '
        'data path" prints.',
    )
    label: str | list[str] | None = Field(
        None,
        description='Of a table (.csv): the column with the label; several for [model] task = "multilabel". Not set: '
        "the source is no table.",
    )
    label_range: list[float] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description='For [model] task = "regression": the lowest and the highest label, if that is public; a private '
        "run needs it, here or in the schema. Labels beyond are cut off. Not set: the scale is taken from the records.",
    )
    id: str | None = Field(
        None,
        description='Of a table: the column that says whose a record is, for partition = "by-id". Not set: owners are '
        "not known.",
    )
    person: str | None = Field(
        None,
        description='Of a table: the column that says which person a row is about, for [privacy] unit = "person". It '
        "is never a feature, and test records are cut by whole persons. Not set: persons are not known.",
    )
    split: str | None = Field(
        None,
        description='Of a table: a column of "train" and "test". Not set: a fifth is set aside for tests; '
        "in a private run only with test_public.",
    )
    subgroup: str | None = Field(
        None,
        description="Of a table: a column, such as the sex, by whose values the final model is judged on test records "
        "(docs/quality.md). It stays a feature unless the schema ignores it. Not set: no subgroups are told.",
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
    decimal: Literal[".", ","] | None = Field(
        None,
        description="Of a table: the mark before the decimals of its numbers. Not set: it follows from the cells of "
        "each column and file, and a number with two meanings is refused.",
    )
    centred: bool = Field(
        False,
        description="Of a table: scale numbers with a public range to [-1, 1], which private training learns from "
        'faster, and not to [0, 1]. Not set: false, and true with [privacy] unit = "record" or "person".',
    )
    clients: int = Field(
        100,
        ge=1,
        description="Number of clients among whom the training records are divided. Where source is several files and "
        "neither clients nor partition is set: one client for each file.",
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

    @model_validator(mode="before")
    @classmethod
    def _sites(cls, given: Any) -> Any:
        """Make each of several files a client, if nothing else is said."""
        if not isinstance(given, dict) or {"id", "shape"} & {key for key, value in given.items() if value is not None}:
            return given
        source, partition = given.get("source"), given.get("partition", "by-id")
        folder = given.get("folder")
        if partition != "by-id" or not _texts(source) or not isinstance(folder, str | None):
            return given
        if "clients" in given and (not isinstance(source, str) or has_magic(source)):
            return {"partition": "by-id", **given}  # also where none of the files is, or one: on a server, and on nodes
        try:
            count = len(table_files(source, folder)) if is_table(source, folder) else 0
        except (SottovoceError, OSError):  # told when the records are loaded
            return given
        return {"clients": count, "partition": "by-id", **given} if count > 1 else given


def _texts(source: object) -> TypeGuard[str | list[str]]:
    return isinstance(source, str) or (isinstance(source, list) and all(isinstance(one, str) for one in source))


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
    if table.shape is not None and table.classes is None and experiment.model.task != "regression":
        raise ValueError("[data] shape is given without classes; records of nodes need both")
    if table.label_range is not None and experiment.model.task != "regression":
        raise ValueError('[data] label_range is for [model] task = "regression"; set that, or remove it')
    if table.label_range is not None and not table.label_range[0] < table.label_range[1]:
        raise ValueError(f"[data] label_range must begin with the lower number, got {table.label_range}")
    if isinstance(table.label, list) and experiment.model.task != "multilabel":
        raise ValueError('[data] label lists columns, which [model] task = "multilabel" learns; name one, or set that')
    if table.scale is not None and table.shape is None:
        raise ValueError("[data] scale is of records that only nodes hold; set shape and classes too, or remove it")
