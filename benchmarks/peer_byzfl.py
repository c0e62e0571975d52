"""Time byzfl's aggregators in its own environment; asked by `benchmarks.threats` for one measurement a line.

The updates are torch tensors, which it treats faster than arrays, and torch has a thread for every core.
"""

from __future__ import annotations

import importlib.util
import sys
from time import perf_counter, process_time
from types import ModuleType

import numpy as np
import torch

# Its aggregators alone: the whole package imports torchvision, whose build may not be one for this torch.
found = importlib.util.find_spec("byzfl")
sys.modules["byzfl"] = ModuleType("byzfl")
sys.modules["byzfl"].__path__ = list(found.submodule_search_locations or ()) if found is not None else []
from byzfl.aggregators import GeometricMedian, Krum, Median, MultiKrum, TrMean  # noqa: E402

ROWS, COLUMNS, MALICIOUS, ARRAY = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
DEFENCES = {
    "median": Median(),
    "trimmed-mean": TrMean(f=MALICIOUS),
    "krum": Krum(f=MALICIOUS),
    "multi-krum": MultiKrum(f=MALICIOUS),
    "geometric-median": GeometricMedian(nu=1e-6, T=10),
}


def main() -> None:
    updates = torch.from_numpy(np.memmap(ARRAY, np.float32, "c", shape=(ROWS, COLUMNS)))
    print("ready", flush=True)
    for line in sys.stdin:
        defence = DEFENCES[line.strip()]
        wall, cpu = perf_counter(), process_time()
        defence(updates)
        print(perf_counter() - wall, process_time() - cpu, flush=True)


if __name__ == "__main__":
    main()
