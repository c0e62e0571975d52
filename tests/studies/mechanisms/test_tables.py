from __future__ import annotations

from pathlib import Path

import pytest

from sottovoce.core.errors import InputError
from sottovoce.studies.mechanisms import beside, printed_cells, printed_curves, read_settings, table_cells
from sottovoce.studies.mechanisms import published as module

FILES = Path(__file__).parents[3] / "experiments" / "mechanisms"


def test_every_table_has_its_printed_cells() -> None:
    counts = {table: len(printed_cells(table)) for table in range(3, 12)}

    assert counts == {3: 8, 4: 12, 5: 12, 6: 12, 7: 12, 8: 12, 9: 12, 10: 24, 11: 24}
    assert len(set(printed_cells())) == sum(counts.values())


def test_the_summaries_repeat_the_other_tables() -> None:
    first = {cell[1:6]: cell.printed for cell in printed_cells() if cell.table < 10}

    for cell in (*printed_cells(10), *printed_cells(11)):
        assert first[cell[1:6]] == cell.printed


def test_some_printed_cells_by_hand() -> None:
    cells = {(cell.table, *cell[2:6]): cell.printed for cell in printed_cells()}

    assert cells[5, "laplace", 1.0, 8, 200] == 0.34
    assert cells[7, "gaussian", 1.0, 3, 100] == 0.27
    assert cells[9, "staircase", 0.1, 8, 100] == 0.31
    assert {cell.printed for cell in printed_cells(3) if cell.data == "mnist"} == {0.78, 0.83, 0.86}


def test_the_means_of_the_curves_are_the_printed_cells() -> None:
    """A cell is the mean over the iterations; five of 56 are printed a hundredth beside the mean of their curve."""
    cells = {cell[1:6]: cell.printed for cell in printed_cells()}
    off = [
        abs(sum(c.accuracy) / 10 - cells[c.data, c.mechanism, c.epsilon, c.clients, c.samples])
        for c in printed_curves()
    ]

    assert len(off) == 56
    assert max(off) < 0.0125
    assert sum(gap > 0.0051 for gap in off) <= 5


def test_a_table_is_played_and_given_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def study(settings: object, wanted: list[module.Cell], tell: object) -> list[dict[str, object]]:
        asked.append((settings, wanted))
        return [
            {
                "data": settings.data,  # type: ignore[attr-defined]
                "mechanism": cell.mechanism,
                "epsilon": cell.epsilon,
                "epsilons": list(cell.epsilons),
                "clients": cell.clients,
                "samples": cell.samples,
                "accuracy": 0.5,
            }
            for cell in wanted
        ]

    monkeypatch.setattr(module, "study_cells", study)
    found = table_cells(4, seed=7)

    (settings, wanted), *others = asked
    assert not others
    assert (settings.mode, settings.data, settings.seed, settings.test_records) == ("printed", "mnist", 7, 1000)
    assert len(wanted) == 12
    assert [cell[:7] for cell in found] == [cell[:7] for cell in printed_cells(4)]
    assert {cell.ours for cell in found} == {0.5}


def test_an_unknown_table_is_refused_and_missing_cells_are_none() -> None:
    with pytest.raises(InputError, match="accuracies in tables 3 to 11, got 2"):
        printed_cells(2)
    assert {cell.ours for cell in beside([], 3)} == {None}


@pytest.mark.parametrize("file", sorted(FILES.glob("*.toml")), ids=lambda file: file.stem)
def test_the_experiment_files_ask_for_the_printed_cells(file: Path) -> None:
    settings = read_settings(file)
    cells = {(settings.data, cell.mechanism, cell.epsilon, cell.clients, cell.samples) for cell in settings.cells()}

    for cell in printed_cells():
        if cell.data == settings.data and (settings.mode == "printed" or cell.epsilon is not None):
            assert cell[1:6] in cells
