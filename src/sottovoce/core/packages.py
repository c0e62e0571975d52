"""Optional packages: which extra of `pip install` brings each, and the error for one that is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from sottovoce.core.errors import InputError

# Module that is imported -> its name for pip, and the extra of sottovoce that has it.
OPTIONAL: Final = {
    "amqtt": ("amqtt", "federation"),
    "flwr": ("flwr", "flower"),
    "jinja2": ("jinja2", "report"),
    "matplotlib": ("matplotlib", "png"),
    "mlflow": ("mlflow", "mlflow"),
    "onnx": ("onnx", "onnx"),
    "onnxruntime": ("onnxruntime", "encoders"),
    "onnxscript": ("onnxscript", "onnx"),
    "paho": ("paho-mqtt", "node"),
    "pandas": ("pandas", "pandas"),
    "plotly": ("plotly", "report"),
    "pooch": ("pooch", "data"),
    "prometheus_client": ("prometheus-client", "metrics"),
    "pyarrow": ("pyarrow", "parquet"),
    "ray": ("ray", "ray"),
    "safetensors": ("safetensors", "safetensors"),
    "sklearn": ("scikit-learn", "studies"),
    "tensorboard": ("tensorboard", "tensorboard"),
    "tokenizers": ("tokenizers", "encoders"),
    "torch": ("torch", "torch"),
    "wandb": ("wandb", "wandb"),
}


def installed(module: str) -> bool:
    """Tell whether a module is installed, without importing it."""
    return find_spec(module) is not None


def require(what: str, *modules: str, extra: str | None = None) -> None:
    """Raise unless the optional modules that `what` needs are installed; nothing is imported.

    The extra that the error names is that of the first missing module, unless `extra` says which one has them all.

    >>> require("--to torch", "torch")
    """
    missing = [module for module in modules if not installed(module)]
    if missing:
        names = " and ".join(OPTIONAL[module][0] for module in missing)
        state = "which is not installed" if len(missing) == 1 else "which are not installed"
        raise unusable(what, missing[0], f"{names}, {state}", extra=extra)


def unusable(what: str, module: str, state: str, *, extra: str | None = None) -> InputError:
    """Return the error for a package that is missing or too old: `state` says so, this adds the way out."""
    return InputError(f"{what} needs {state}; install it with: {install_line(extra or OPTIONAL[module][1])}")


def install_line(extra: str) -> str:
    """Return the command that installs an extra; a package that cannot live beside the others says so.

    >>> install_line("report")
    "pip install 'sottovoce[report]'"
    """
    place = ", in an environment of its own" if extra == "flower" else ""
    return f"pip install 'sottovoce[{extra}]'{place}"
