"""A torch module as an encoder: its weights' digest, and its output of one record."""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sottovoce.core.errors import InputError


@dataclass(frozen=True)
class TorchEncoder:
    """A frozen torch module, in evaluation mode."""

    module: Any
    digest: str  # of the file, or of the names and values of all weights

    @classmethod
    def load(cls, source: str) -> TorchEncoder:
        """Return the module of a .pt2 file, or the one that `module:name` is or makes."""
        try:
            if source.endswith(".pt2"):
                path = Path(source).expanduser()
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                return cls(torch.export.load(path).module(), digest)
            place, _, name = source.partition(":")
            module = getattr(importlib.import_module(place), name)
            module = module if isinstance(module, nn.Module) else module()
        except Exception as error:  # whatever a file or a user's module raises
            told = (str(error).strip().splitlines() or [""])[0][:200]
            raise InputError(f"[model] encoder.source {source!r} cannot be loaded: {told}") from None
        if not isinstance(module, nn.Module):
            raise InputError(f"[model] encoder.source {source!r} is no torch module and makes none")
        total = hashlib.sha256()
        for label, values in module.eval().state_dict().items():
            total.update(f"{label} {values.dtype} {tuple(values.shape)}".encode())
            total.update(np.ascontiguousarray(values.cpu().numpy()).data)
        return cls(module, total.hexdigest())

    @property
    def channels(self) -> int | None:
        """Return how many channels its first convolution reads; None if it has none."""
        found = (part.in_channels for part in self.module.modules() if isinstance(part, nn.Conv2d))
        return next(found, None)

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the output of one record."""
        with torch.inference_mode():
            return np.asarray(self.module(torch.from_numpy(np.array(x))).numpy())
