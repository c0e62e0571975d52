"""Synthetic hospital records: as rare, sparse and hard as their description says."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, ndtri
from scipy.stats import rankdata

from sottovoce.core.streams import Purpose, Streams
from sottovoce.data.compact import CompactFeatures
from sottovoce.data.premier import FEATURES, HOSPITALS, MOST, OFFSET, SCALE, premier


def _chances(x: CompactFeatures) -> np.ndarray:
    """Return the chance of death by the formula of the module, the slow and obvious way."""
    raw = Streams(1).get(Purpose.INIT, 0).bit_generator.random_raw(FEATURES)
    weights = SCALE * ndtri((np.asarray(raw) >> np.uint64(11)) * 2.0**-53 + 2.0**-54)
    return expit(OFFSET + np.concatenate([x[start : start + 2000] @ weights for start in range(0, len(x), 2000)]))


def test_deaths_are_as_rare_and_as_hard_to_foretell_as_described() -> None:
    records = 100_000
    made = premier(records, 10)

    chances = _chances(made.x_train)

    # Five standard deviations: a correct generator fails once in 1.7 million seeds.
    assert abs(made.y_train.mean() - 0.0316) < 5 * np.sqrt(0.0316 / records)
    assert abs(made.y_train.mean() - chances.mean()) < 5 * np.sqrt(0.0316 / records)
    died = made.y_train == 1
    above = rankdata(chances)[died].sum() - died.sum() * (died.sum() + 1) / 2
    assert abs(above / died.sum() / (~died).sum() - 0.83) < 0.02


def test_features_are_sparse_and_follow_zipf_and_every_hospital_has_a_number() -> None:
    made = premier(20_000, 10)
    wide = made.x_train[:20_000]

    counts = wide.sum(axis=0)

    assert set(np.unique(wide)) == {0.0, 1.0}
    assert wide.sum(axis=1).min() >= 1 and wide.sum(axis=1).max() <= MOST
    assert counts[:10].mean() > 10 * counts[700:800].mean() > 10 * counts[7000:].mean()
    assert made.ids is not None and made.ids.min() >= 0 and made.ids.max() < HOSPITALS


def test_fewer_records_are_the_first_of_more() -> None:
    few, more = premier(50, 7), premier(120, 9)

    assert np.array_equal(few.x_train[:], more.x_train[:50])
    assert np.array_equal(few.y_train, more.y_train[:50])
