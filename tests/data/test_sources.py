from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import io
import socket
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce.data
from sottovoce.core.errors import DataError, RunError
from sottovoce.data import catalogue, describe, fetch, load, locate, names
from sottovoce.data.catalogue import SOURCES, Remote
from sottovoce.data.features import held_out
from sottovoce.data.images import IDX


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + sizes + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, pixel: int, labels: tuple[int, ...] = (0, 1, 2), suffix: str = ".gz") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    images = np.full((len(labels), 28, 28), pixel)
    for name, array in zip(IDX, (images, np.array(labels)) * 2, strict=True):
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(idx(array)) if suffix else idx(array))
    return folder


def change(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    monkeypatch.setattr(catalogue, name.upper().replace("-", "_"), dataclasses.replace(SOURCES[name], **fields))


def test_the_public_names_are_complete_and_sorted() -> None:
    exported = sottovoce.data.__all__

    assert exported == sorted(exported, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert all(hasattr(sottovoce.data, name) for name in exported)


def test_digits_are_embedded() -> None:
    digits = load("digits")

    assert digits.shape == (8, 8, 1)
    assert (digits.records, len(digits.y_test)) == SOURCES["digits"].records
    assert digits.records + len(digits.y_test) == 1797
    assert digits.x_train.max() * digits.input_scale == 1


def test_the_digits_of_the_package_are_those_of_scikit_learn() -> None:
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    digits = load("digits")
    test = held_out([str(row) for row in range(1797)])

    for ours, part in ((digits.x_train, ~test), (digits.x_test, test)):
        assert np.array_equal(ours, theirs.images[part][..., np.newaxis]) and ours.dtype == np.uint8
    for ours, part in ((digits.y_train, ~test), (digits.y_test, test)):
        assert np.array_equal(ours, theirs.target[part]) and ours.dtype == np.uint8


def test_no_digit_is_lost_or_taken_twice() -> None:
    digits = load("digits")

    # The counts that scikit-learn's own loader gives.
    counts = np.bincount(np.concatenate([digits.y_train, digits.y_test]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_look_up_goes_from_the_folder_given_to_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch, "fashion-mnist", system=write_idx(tmp_path / "debian", pixel=3))
    write_idx(cache / "fashion-mnist", pixel=4)
    monkeypatch.setenv("SOTTOVOCE_DATA", str(tmp_path / "shared"))
    write_idx(tmp_path / "shared" / "fashion-mnist", pixel=2, suffix="")
    given = write_idx(tmp_path / "given", pixel=1)

    def pixel(folder: Path | None = None) -> int:
        return int(load("fashion-mnist", folder).x_train[0, 0, 0, 0])

    assert pixel(given) == 1
    assert pixel() == 2
    monkeypatch.delenv("SOTTOVOCE_DATA")
    assert pixel() == 3
    change(monkeypatch, "fashion-mnist", system=tmp_path / "nowhere")
    assert pixel() == 4
    assert locate("fashion-mnist") == cache / "fashion-mnist"


def test_torchvisions_folders_are_known(tmp_path: Path) -> None:
    write_idx(tmp_path / "FashionMNIST" / "raw", pixel=7)

    assert load("fashion-mnist", tmp_path).x_test.max() == 7


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    write_idx(tmp_path, pixel=1, labels=(5, 0, 4, 1, 9, 2, 1, 3))

    assert load("mnist", tmp_path).records == 8
    with pytest.raises(DataError, match="holds mnist, not fashion-mnist"):
        load("fashion-mnist", tmp_path)


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if source.forms])
def test_missing_data_names_every_way_to_get_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, name, system=None)

    with pytest.raises(DataError, match=f"{name} is not on this machine") as caught:
        load(name, tmp_path)

    message = str(caught.value)
    assert "\n" not in message
    assert "give the folder" in message
    assert "SOTTOVOCE_DATA" in message
    assert f"sottovoce data fetch {name}" in message or "docs/data.md" in message
    assert ("Debian package dataset-fashion-mnist" in message) == (name == "fashion-mnist")
    assert locate(name, tmp_path) is None


def test_an_unknown_name_or_folder_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data set 'mnst'; did you mean 'mnist'"):
        load("mnst")
    with pytest.raises(DataError, match="known: digits, mnist"):
        load("zzz")
    with pytest.raises(DataError, match="absent does not exist"):
        load("mnist", tmp_path / "absent")


def test_describe_says_what_is_where(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist", pixel=1)

    where = {entry.name: entry.where for entry in describe(tmp_path)}

    assert list(where) == names()
    assert where["digits"] == "embedded"
    assert where["mnist"] == str(tmp_path / "mnist")
    assert where["lfw"] == "missing"


class Server:
    """Serve what a test puts into `files`, and remember what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked.append(self.path)
                body = owner.files.get(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    served = Server()
    thread = threading.Thread(target=served.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.http.shutdown()
    thread.join()
    served.http.server_close()


def serve_fashion(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_idx(tmp_path / "upstream", pixel=9)
    server.files = {f"/{path.name}": path.read_bytes() for path in folder.iterdir()}
    remotes = tuple(
        Remote(server.address + path, path[1:], hashlib.sha256(body).hexdigest(), len(body))
        for path, body in server.files.items()
    )
    change(monkeypatch, "fashion-mnist", remotes=remotes, system=None)


def test_fetched_files_are_verified_kept_and_found(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_fashion(server, tmp_path, monkeypatch)

    assert fetch("fashion-mnist") == cache / "fashion-mnist"

    output = capsys.readouterr()
    assert output.out == ""
    assert "train-images" in output.err
    assert load("fashion-mnist").x_train.max() == 9
    fetch("fashion-mnist", progress=False)
    assert len(server.asked) == 4


def test_load_downloads_only_when_asked(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_fashion(server, tmp_path, monkeypatch)

    with pytest.raises(DataError, match="not on this machine"):
        load("fashion-mnist")
    assert server.asked == []
    assert load("fashion-mnist", download=True).records == 3


def test_a_file_with_another_checksum_is_not_kept(
    server: Server, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_fashion(server, tmp_path, monkeypatch)
    server.files = {path: body + b"!" for path, body in server.files.items()}

    with pytest.raises(RunError, match=r"could not be fetched: .*hash") as caught:
        fetch("fashion-mnist", progress=False)

    assert "\n" not in str(caught.value)
    assert list((cache / "fashion-mnist").iterdir()) == []


def test_a_dead_address_is_a_failed_run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_fashion(server, tmp_path, monkeypatch)
    server.files = {}

    with pytest.raises(RunError, match="could not be fetched: 404"):
        fetch("fashion-mnist", progress=False)


def test_without_a_network_one_sentence_says_so_and_the_way_out(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with socket.socket() as nobody:  # bound and not listening: every connection is refused
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/data.gz"
        change(monkeypatch, "fashion-mnist", remotes=(Remote(url, "data.gz", "0" * 64, 1),), system=None)

        with pytest.raises(RunError) as caught:
            fetch("fashion-mnist", progress=False)

    assert caught.value.exit_code == 4
    assert str(caught.value) == (
        f"{url} could not be fetched: no connection to 127.0.0.1; "
        f"try again online, or fetch the file elsewhere and put it into {cache / 'fashion-mnist'}"
    )


@pytest.mark.parametrize("honest", [True, False])
def test_a_member_of_a_zip_is_kept_only_if_its_own_checksum_fits(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, honest: bool
) -> None:
    body = b"encounter_id,patient_nbr\n" * 100
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        target.writestr("IDS_mapping.csv", b"x")
        target.writestr("diabetic_data.csv", body if honest else body[::-1])
    server.files = {"/d.zip": archive.getvalue()}
    pinned = dataclasses.replace(
        SOURCES["diabetes130"].remotes[0],
        url=f"{server.address}/d.zip",
        sha256=hashlib.sha256(body).hexdigest(),
        size=len(body),
    )
    change(monkeypatch, "diabetes130", remotes=(pinned,))

    if honest:
        assert (fetch("diabetes130", progress=False) / "diabetic_data.csv").read_bytes() == body
    else:
        with pytest.raises(RunError, match="it was not kept"):
            fetch("diabetes130", progress=False)
        assert list((cache / "diabetes130").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"), [("fairface", r"docs/data\.md"), ("lfw", r"docs/data\.md"), ("digits", "embedded")]
)
def test_what_has_no_verifiable_address_says_how_to_get_it_by_hand(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fetch(name)


@pytest.mark.parametrize("source", list(SOURCES.values()), ids=lambda source: source.name)
def test_every_address_has_a_whole_checksum_and_a_reader(source: Any) -> None:
    files = {remote.file for remote in source.remotes}

    assert all(len(bytes.fromhex(remote.sha256)) == 32 for remote in source.remotes)
    assert not files or any(files == set(form.files) for form in source.forms)
    assert source.remotes or source.by_hand or source.name == "digits"
