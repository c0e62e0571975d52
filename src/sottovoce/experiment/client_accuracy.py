"""Measure the final model client by client, on the records that each client kept out of its training."""

from __future__ import annotations

from typing import Final

import numpy as np

from sottovoce.core.streams import Purpose
from sottovoce.core.vectors import Vector
from sottovoce.experiment.parts import Parts
from sottovoce.experiment.records import Record
from sottovoce.federation.engine import Evaluator
from sottovoce.federation.local_evaluation import summarise_clients

__all__ = ["MEASURED_CLIENTS", "client_accuracy", "clients_note"]

MEASURED_CLIENTS: Final = 1000  # at most; of more clients, so many are drawn


def client_accuracy(parts: Parts, evaluator: Evaluator, params: Vector) -> Record:
    """Return mean, worst tenth and worst of the clients' accuracies; with `personal_steps`, of personal models too.

    This is not private: whoever publishes the result of a private run must leave it out.
    """
    clients, steps = _measured(parts), parts.experiment.client.personal_steps
    found: Record = summarise_clients(np.array(evaluator.client_accuracies(params, clients)))
    if steps:
        personal = np.array(evaluator.client_accuracies(params, clients, steps))
        found |= summarise_clients(personal, "personal")
        del found["personal_accuracy_clients"]  # the same clients
    return found


def clients_note(parts: Parts) -> Record:
    """Return what must be said beside these numbers, or in their place; it follows from the configuration alone."""
    if parts.experiment.privacy is not None:
        told = "not published, as no noise protects a single client's accuracy; operator.jsonl has it, for the operator"
        return {"client_accuracy_note": told}
    clients = parts.partition.clients
    if clients <= MEASURED_CLIENTS:
        return {}
    return {"client_accuracy_note": f"measured on {MEASURED_CLIENTS:,} of {clients:,} clients, drawn at random"}


def _measured(parts: Parts) -> list[int]:
    clients = parts.partition.clients
    if clients <= MEASURED_CLIENTS:
        return list(range(clients))
    drawn = parts.seeds.world.get(Purpose.COHORT).choice(clients, MEASURED_CLIENTS, replace=False, shuffle=False)
    return [int(client) for client in np.sort(drawn)]
