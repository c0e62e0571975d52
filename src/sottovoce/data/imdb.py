"""Read the IMDB reviews as rows of 400 word numbers: packed, or from the archive of their authors.

0 pads on the left, 1 starts a review, 2 is an unknown word, 3 to 4999 are the words of the train reviews by frequency.
Of a longer review the last 400 numbers are kept.
"""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.errors import DataError
from sottovoce.data.dataset import Dataset
from sottovoce.data.files import damaged, read_npz

LENGTH: Final = 400
VOCABULARY: Final = 5000
START, UNKNOWN, FIRST_WORD = 1, 2, 3
REVIEW_LIMIT: Final = 1 << 20
_MEMBER = re.compile(r"aclImdb/(train|test)/(neg|pos)/(\d+)_\d+\.txt")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
# A word is in it, and has its number, because of how often the train reviews have it.
FITTED: Final = {"the vocabulary": "give reviews as an npz file whose words were numbered by a public list"}

Tokens = NDArray[np.uint16]


def read_packed(path: Path) -> Dataset:
    """Read ragged rows: all tokens one after the other, and the length of each row."""
    names = [f"{array}_{part}" for part in ("train", "test") for array in ("tok", "len", "y")]
    arrays = read_npz(path, names)
    with damaged(path):
        x_train, x_test = (left_pad(arrays[f"tok_{part}"], arrays[f"len_{part}"]) for part in ("train", "test"))
        return Dataset("imdb", x_train, arrays["y_train"], x_test, arrays["y_test"], classes=2, fitted=FITTED)


def left_pad(tokens: Tokens, lengths: NDArray[np.integer]) -> Tokens:
    """Return one row of 400 for each length, its tokens at the right end.

    >>> left_pad(np.array([1, 7, 1], np.uint16), np.array([2, 1]))[:, -3:].tolist()
    [[0, 1, 7], [0, 0, 1]]
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    if lengths.ndim != 1 or tokens.ndim != 1 or (lengths.size and int(ends[-1]) != tokens.size):
        raise DataError(f"{tokens.size} tokens were given for rows of {int(np.sum(lengths))} in all")
    rows = np.zeros((lengths.size, LENGTH), np.uint16)
    places = np.repeat(ends, lengths) - np.arange(tokens.size)  # counted from the right end of the row, from 1
    owners = np.repeat(np.arange(lengths.size), lengths)
    kept = places <= LENGTH
    rows[owners[kept], LENGTH - places[kept]] = tokens[kept]
    return rows


def read_archive(path: Path) -> Dataset:
    """Read `aclImdb_v1.tar.gz` in one pass; rows are ordered by review number, negative before positive."""
    reviews: dict[str, list[tuple[int, int, list[str]]]] = {"train": [], "test": []}
    with damaged(path):
        try:
            with tarfile.open(path, "r|gz") as archive:
                for member in archive:
                    match = _MEMBER.fullmatch(member.name)
                    if match is None:
                        continue
                    stream = archive.extractfile(member)
                    if stream is None or member.size > REVIEW_LIMIT:
                        raise DataError(f"{path}: {member.name} is no review of at most {REVIEW_LIMIT} bytes")
                    part, mood, number = match.groups()
                    reviews[part].append((int(number), int(mood == "pos"), words(stream.read().decode("utf-8"))))
        except tarfile.TarError as error:
            raise DataError(f"{path} is damaged ({error}); fetch or copy it again") from None
    if not all(reviews.values()):
        raise DataError(f"{path} holds no reviews below aclImdb/train and aclImdb/test")
    counts = Counter(word for _, _, review in reviews["train"] for word in review)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - FIRST_WORD]
    numbers = {word: number for number, word in enumerate(ranked, FIRST_WORD)}
    x_train, y_train = _encode(reviews["train"], numbers)
    x_test, y_test = _encode(reviews["test"], numbers)
    return Dataset("imdb", x_train, y_train, x_test, y_test, classes=2, fitted=FITTED)


def words(text: str) -> list[str]:
    """Split a review into lower-case words.

    >>> words("It's<br />GOOD_fun.")
    ["it's", 'good', 'fun']
    """
    return _WORD.findall(text.replace("<br />", " ").lower())


def _encode(reviews: list[tuple[int, int, list[str]]], numbers: dict[str, int]) -> tuple[Tokens, NDArray[np.uint8]]:
    reviews.sort(key=lambda review: review[:2])
    rows = [[START, *(numbers.get(word, UNKNOWN) for word in review)] for _, _, review in reviews]
    tokens = np.array([token for row in rows for token in row], np.uint16)
    x = left_pad(tokens, np.array([len(row) for row in rows], np.int64))
    return x, np.array([label for _, label, _ in reviews], np.uint8)
