"""Know the kernels: how a network is described to them, and whether they can run here.

`Layer` and `Job` mirror the structures of the same names in `kernels_shapes.h`.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from sottovoce.core.errors import InputError
from sottovoce.models.base import Shape
from sottovoce.models.network import Conv2d, Flatten, Linear, MaxPool, Network

MAX_LAYERS: Final = 32  # as in kernels_shapes.h


class Layer(ctypes.Structure):
    """A layer with weights, as the kernels see it, and how it learns."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("conv", "inputs", "outputs", "relu")),
        *((name, ctypes.c_int32) for name in ("height", "width", "kernel", "pad_before", "pad_total", "pool")),
        *((name, ctypes.c_int32) for name in ("mode", "records")),
        *((name, ctypes.c_int64) for name in ("weight", "bias", "kept")),
    )


class Job(ctypes.Structure):
    """What one call of the kernels is to do."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("layers", "steps", "chunk", "batch")),
        *((name, ctypes.c_int32) for name in ("bytes", "loss", "training", "lowest")),
        *((name, ctypes.c_float) for name in ("scale", "lr")),
        ("layer", Layer * MAX_LAYERS),
    )


def unavailable() -> str | None:
    """Return why the kernels cannot run on this machine, or None."""
    library = _library()
    return library if isinstance(library, str) else None


def layers_of(network: Network) -> list[Layer]:
    """Describe the network to the kernels: each convolution with the pool that follows it, each dense layer."""
    found: list[Layer] = []
    poolable = False
    for number, layer in enumerate(network.layers):
        shape = network.shapes[number]
        where = f"layer {number} ({type(layer).__name__})"
        if isinstance(layer, Conv2d):
            if layer.stride != 1:
                raise InputError(f"{where}: the fast trainer knows stride 1, not {layer.stride}")
            found.append(_convolution(layer, shape, network, number))
        elif isinstance(layer, Linear):
            found.append(
                Layer(inputs=shape[0], outputs=layer.units, relu=layer.relu, kernel=1, **_spans(network, number))
            )
        elif isinstance(layer, MaxPool):
            if layer.size != 2 or not poolable:
                raise InputError(f"{where}: the fast trainer pools 2 x 2, straight after a convolution")
            found[-1].pool = 2
        elif not isinstance(layer, Flatten):
            raise InputError(f"{where} is not known to the fast trainer")
        poolable = isinstance(layer, Conv2d)
    if not found or found[-1].conv or found[-1].relu:
        raise InputError(f"layer {len(network.layers) - 1}: the fast trainer ends with a Linear layer without ReLU")
    if len(found) > MAX_LAYERS:
        raise InputError(f"the fast trainer knows up to {MAX_LAYERS} layers with weights, got {len(found)}")
    return found


def _convolution(layer: Conv2d, shape: Shape, network: Network, number: int) -> Layer:
    height, width, channels = shape
    before, after = layer.pads(height)
    return Layer(
        conv=True,
        inputs=channels,
        outputs=layer.filters,
        relu=layer.relu,
        height=height,
        width=width,
        kernel=layer.kernel,
        pad_before=before,
        pad_total=before + after,
        pool=1,
        **_spans(network, number),
    )


def _spans(network: Network, number: int) -> dict[str, int]:
    layout = network.layout
    return {name: layout.span(f"{number}.{tensor}").start for name, tensor in (("weight", "kernel"), ("bias", "bias"))}


class Kernels:
    """The functions of the library for a level: 0 is any processor, 1 is AVX2 with FMA, 2 is AVX-512."""

    def __init__(self, loaded: ctypes.CDLL, level: int) -> None:
        job, place, number = ctypes.POINTER(Job), ctypes.c_void_p, ctypes.c_int32

        def function(name: str, result: Any, *arguments: Any) -> Any:
            found = getattr(loaded, f"sottovoce_{name}_{level}")
            found.restype, found.argtypes = result, arguments
            return found

        self.packed_size = function("packed_size", ctypes.c_int64, job)
        self.workspace_size = function("workspace_size", ctypes.c_int64, job, place)
        self.pack = function("pack", None, job, place, place)
        self.train = function("train", None, job, *[place] * 9)
        self.updates = function("updates", None, job, place, place, number, number, ctypes.c_int64, *[place] * 4)
        self.scores = function("scores", None, job, place, ctypes.c_int64, place, place, place)
        self.losses = loaded.sottovoce_losses() if hasattr(loaded, "sottovoce_losses") else 2
        # A library from before there were units trains as ever; units.py then does without.
        self.sums_units = hasattr(loaded, f"sottovoce_centres_{level}")
        if self.sums_units:
            count, real = ctypes.c_int64, ctypes.c_double
            self.centres = function(
                "centres", None, job, *[place] * 3, count, *[place] * 5, count, *[real] * 3, *[place] * 4
            )
            self.add_centre = function("add_centre", None, place, count, *[real] * 3, place)


@cache
def _library() -> Kernels | str:
    """Load the kernels, or say why not."""
    spec = find_spec("sottovoce.models._kernels")
    if spec is None or spec.origin is None:
        return "the kernels were not built: no C compiler when sottovoce was installed"
    try:
        library = ctypes.CDLL(spec.origin)
    except OSError as error:
        return f"{Path(spec.origin).name} does not load: {error}"
    if not library.sottovoce_supported():
        return "the kernels are not written for the compiler that sottovoce was installed with"
    if not hasattr(library, "sottovoce_level") or library.sottovoce_job_size() != ctypes.sizeof(Job):
        return f"{Path(spec.origin).name} was built from other sources; install sottovoce again"
    return Kernels(library, library.sottovoce_level())


def kernels() -> Kernels:
    """Return the kernels, or raise with the reason why there are none."""
    library = _library()
    if isinstance(library, str):
        raise InputError(f"the fast trainer is not available: {library}")
    return library
