"""Load data sets and divide their records among clients."""

from __future__ import annotations

from sottovoce.data.augment import augmented
from sottovoce.data.cache import cache_folder
from sottovoce.data.csv_file import read_csv
from sottovoce.data.dataset import HAS, HAS_NOT, UNKNOWN, Dataset, Property
from sottovoce.data.dead_leaves import LEAVES, describe_leaves, leaves
from sottovoce.data.exclusive import With, Without
from sottovoce.data.hospital import DOWN, OVER, WEIGHTED, balance, balanced_size
from sottovoce.data.npz_files import read_records
from sottovoce.data.partition import (
    KINDS,
    Partition,
    Shards,
    Sizes,
    Virtual,
    mean_balanced_size,
    mean_of_clients,
    partition,
)
from sottovoce.data.placeholder import outline
from sottovoce.data.preprocessing import Preprocessing
from sottovoce.data.same_records import Origin, closed
from sottovoce.data.schema import Schema, read_schema
from sottovoce.data.sources import Description, describe, fetch, is_file, is_table, load, locate, names, origin
from sottovoce.data.table import Aside, TableKeys, as_table, read_like, read_tables, table_dataset
from sottovoce.data.table_files import Source, table_files

__all__ = [
    "DOWN",
    "HAS",
    "HAS_NOT",
    "KINDS",
    "LEAVES",
    "OVER",
    "UNKNOWN",
    "WEIGHTED",
    "Aside",
    "Dataset",
    "Description",
    "Origin",
    "Partition",
    "Preprocessing",
    "Property",
    "Schema",
    "Shards",
    "Sizes",
    "Source",
    "TableKeys",
    "Virtual",
    "With",
    "Without",
    "as_table",
    "augmented",
    "balance",
    "balanced_size",
    "cache_folder",
    "closed",
    "describe",
    "describe_leaves",
    "fetch",
    "is_file",
    "is_table",
    "leaves",
    "load",
    "locate",
    "mean_balanced_size",
    "mean_of_clients",
    "names",
    "origin",
    "outline",
    "partition",
    "read_csv",
    "read_like",
    "read_records",
    "read_schema",
    "read_tables",
    "table_dataset",
    "table_files",
]
