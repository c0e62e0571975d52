"""The study of mechanisms (the BSc thesis on PrivacyFL): logistic regression with noise on the clients' weights."""

from __future__ import annotations

from sottovoce.studies.mechanisms.published import beside, printed_cells, printed_curves, table_cells
from sottovoce.studies.mechanisms.settings import Settings, read_settings
from sottovoce.studies.mechanisms.study import read_cells, run_study, study_cells

__all__ = [
    "Settings",
    "beside",
    "printed_cells",
    "printed_curves",
    "read_cells",
    "read_settings",
    "run_study",
    "study_cells",
    "table_cells",
]
