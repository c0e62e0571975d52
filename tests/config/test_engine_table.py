"""The `[engine]` table: keys that belong to one engine, addresses, and a package that may be missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sottovoce.checks.twin import few
from sottovoce.core.errors import ConfigError, InputError
from sottovoce.runs.loop import run


@pytest.mark.parametrize("address", ["local", "auto", "10.0.0.1:6379", "head.example:65535"])
def test_a_cluster_is_named_by_a_word_or_by_host_and_port(address: str) -> None:
    assert few(engine={"name": "ray", "address": address}).engine.address == address


@pytest.mark.parametrize("address", ["", "here", "ray://head:10001", "head:80", "head:65536", ":6379", "head:six"])
def test_other_addresses_are_refused_in_one_sentence(address: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        few(engine={"name": "ray", "address": address})

    assert str(refusal.value) == (
        'experiment: [engine] address must be "local", "auto" or "host:port" with a port in [1024, 65535], got '
        f'"{address}"'
    )


def test_an_address_is_for_ray_alone() -> None:
    with pytest.raises(ConfigError, match=r'\[engine\] address is for name = "ray"; set that, or remove address'):
        few(engine={"address": "auto"})


def test_ray_that_is_not_installed_is_one_sentence_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sottovoce.federation.engines.ray_session", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(InputError) as refusal:
        run(few(engine={"name": "ray"}), tmp_path / "run")

    assert str(refusal.value) == (
        "[engine] name = \"ray\" needs ray, which is not installed; install it with: pip install 'sottovoce[ray]'"
    )
    assert refusal.value.exit_code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("data", ["parts", "", "./parts", "s3://bucket"])
def test_a_folder_that_machines_would_not_agree_on_is_refused(data: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        few(engine={"name": "ray", "data": data})

    assert str(refusal.value) == (f'experiment: [engine] data must be a path from /, ~ or a $VARIABLE on, got "{data}"')


def test_a_folder_of_parts_is_for_ray_alone() -> None:
    assert few(engine={"name": "ray", "data": "~/parts"}).engine.data == "~/parts"
    with pytest.raises(ConfigError, match=r'\[engine\] data is for name = "ray"; set that, or remove data'):
        few(engine={"data": "/parts"})
