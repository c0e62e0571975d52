"""Name what can go wrong, and the exit code that tells the shell.

    SottovoceError              4
    ├── InputError              2   the user's words: config, arguments, data
    │   ├── ConfigError         2   an experiment file or `--set`
    │   └── DataError           2   a data set that is missing, damaged or of another shape
    ├── PrivacyError            3   a guarantee that could not be kept
    └── RunError                4   a run that failed
        ├── WireError           4   a payload that is not what its reader was told to expect
        └── SecAggError         4   a secure-aggregation message or phase that must be refused

Messages name the field, the rule, the value and the way out, in one sentence.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ConfigError",
    "DataError",
    "InputError",
    "PrivacyError",
    "RunError",
    "SecAggError",
    "SottovoceError",
    "WireError",
]


class SottovoceError(Exception):
    """Stand above every error that sottovoce raises on purpose."""

    exit_code: ClassVar[int] = 4


class InputError(SottovoceError):
    """Say what is wrong with the user's input."""

    exit_code = 2


class ConfigError(InputError):
    """Say which key of an experiment breaks which rule."""


class DataError(InputError):
    """Say which data set is missing or damaged, and how to get it."""


class PrivacyError(SottovoceError):
    """Refuse what would void a privacy guarantee."""

    exit_code = 3


class RunError(SottovoceError):
    """Say why a run could not go on."""


class WireError(RunError):
    """Refuse a truncated, oversized, foreign or corrupted payload."""


class SecAggError(RunError):
    """Refuse a secure-aggregation message or phase."""
