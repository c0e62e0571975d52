"""All errors that sottovoce raises on purpose, with the exit code of each.

    SottovoceError              4
    ├── InputError              2   the user's words: config, arguments, data
    │   ├── ConfigError         2   an experiment file or `--set`
    │   └── DataError           2   a data set that is missing, damaged or of another shape
    ├── PrivacyError            3   a guarantee that could not be kept
    │   └── PolicyError         3   what a site's own policy does not allow
    └── RunError                4   a run that failed
        ├── WireError           4   a payload that is not what its reader was told to expect
        └── SecAggError         4   a secure-aggregation message or phase that must be refused

Messages name the field, the rule, the value and the way out, in one sentence.
"""

from __future__ import annotations

from typing import ClassVar


class SottovoceError(Exception):
    """Base of every error that sottovoce raises on purpose."""

    exit_code: ClassVar[int] = 4


class InputError(SottovoceError):
    """Wrong input of the user."""

    exit_code = 2


class ConfigError(InputError):
    """Key of an experiment file or of `--set` that breaks a rule."""


class DataError(InputError):
    """Data set that is missing or damaged; the message says how to get it."""


class PrivacyError(SottovoceError):
    """Refusal of what would break a privacy guarantee."""

    exit_code = 3


class PolicyError(PrivacyError):
    """Refusal of what a site's own policy does not allow; the server is told "policy", and no more."""


class RunError(SottovoceError):
    """Reason why a run could not go on."""


class WireError(RunError):
    """Refusal of a payload that is cut short, too long, of another kind or corrupted."""


class SecAggError(RunError):
    """Refusal of a message or phase of secure aggregation."""
