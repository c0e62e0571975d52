"""Load data sets and divide their records among clients."""

from __future__ import annotations

from sottovoce.data.cache import cache_folder
from sottovoce.data.dataset import Dataset
from sottovoce.data.hospital import balance
from sottovoce.data.partition import KINDS, Partition, Shards, Sizes, Virtual, mean_balanced_size, partition
from sottovoce.data.sources import Description, describe, fetch, is_file, load, locate, names

__all__ = [
    "KINDS",
    "Dataset",
    "Description",
    "Partition",
    "Shards",
    "Sizes",
    "Virtual",
    "balance",
    "cache_folder",
    "describe",
    "fetch",
    "is_file",
    "load",
    "locate",
    "mean_balanced_size",
    "names",
    "partition",
]
