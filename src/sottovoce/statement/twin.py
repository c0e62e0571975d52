"""The price of privacy: what a run measures beside its twin, the same run without privacy.

A twin trains on the same records without noise, so its numbers, and that it was run at all, tell of them. It is shown
only where these records are public: a published data set, or records that the operator declares public, in words that
the statement repeats.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any, Final

from sottovoce.core.errors import InputError, PrivacyError
from sottovoce.data.catalogue import SOURCES
from sottovoce.runs.population import source_words

_SAME: Final = ("data", "model")  # tables in which a twin does not differ
_METRICS: Final = ("accuracy", "balanced_accuracy", "auroc", "mae", "rmse", "r2", "f1", "exact_match")
_NO_CHOICE: Final = ("centred",)  # keys of these tables that follow from the unit, where a file leaves them out


def twin_record(config: str, twin: Mapping[str, Any], public: str | None) -> dict[str, Any]:
    """Return what a statement keeps of a twin, or raise why it is none; `twin` has config, summary and digests.

    Guarantee: raises unless the records of both are public, by publication or by the operator's word.
    """
    here, there = (_tables(text) for text in (config, twin["config"]))
    if twin["summary"].get("private"):
        raise InputError("the twin is private too; a twin is the same run without [privacy]")
    for name in _SAME:
        others = _others(here.get(name, {}), there.get(name, {}))
        if others:
            raise InputError(
                f"the twin has another [{name}] {', '.join(others)}; only [privacy] and what follows differ"
            )
    source = here.get("data", {}).get("source")
    if public is None and (not isinstance(source, str) or source not in SOURCES):
        raise PrivacyError(
            f"a twin without privacy tells of its records, and {source_words(source)} is no published data set; say "
            "with --public who made these records public, or leave the twin out"
        )
    return {
        "config": twin["config"],
        "summary": twin["summary"],
        "digests": twin["digests"],
        "public": public or f"published data set {source}",
    }


def price_of_privacy(config: str, summary: Mapping[str, Any], twin: Mapping[str, Any] | None) -> Any:
    """Return what the run and its twin measured, or why nobody knows the price."""
    if not summary.get("private"):
        return "none: the run is not private"
    if twin is None:
        source = _tables(config).get("data", {}).get("source")
        if isinstance(source, str) and source in SOURCES:
            return (
                f"unknown: {source} is a published data set, so a twin may tell: run the same file without [privacy] "
                "and type sottovoce statement RUN --twin THAT"
            )
        return "unknown: a twin without privacy would tell of the records, and nobody declared them public"
    other = twin["summary"]
    rows = {}
    for metric in _METRICS:
        with_, without = (told.get(f"{metric}_final") for told in (summary, other))
        if with_ is not None and without is not None:
            rows[metric] = {"with privacy": with_, "without": without, "price": round(abs(without - with_), 6)}
            rows[metric] |= {} if _worse(metric, with_, without) else {"note": "with privacy it is not worse"}
    return {
        "metrics": rows or "neither run measured the same",
        "records": twin["public"],
        "the twin also differs in": _beside(_tables(config), _tables(twin["config"])) or "nothing",
    }


def _worse(metric: str, with_: float, without: float) -> bool:
    return with_ > without if metric in ("mae", "rmse") else with_ < without


def _beside(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Name the keys outside [privacy] in which both files differ."""
    tables = sorted({*here, *there} - {"privacy"})
    names = [(table, key) for table in tables for key in _others(here.get(table, {}), there.get(table, {}), ())]
    return [f"[{table}] {key}" for table, key in names if (table, key) != ("experiment", "name")]


def _others(one: Any, other: Any, ignored: tuple[str, ...] = _NO_CHOICE) -> list[str]:
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return [] if one == other else ["values"]
    return sorted(key for key in {*one, *other} - {*ignored} if one.get(key) != other.get(key))


def _tables(config: str) -> dict[str, Any]:
    try:
        return tomllib.loads(config)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"config.toml cannot be read: {error}") from None
