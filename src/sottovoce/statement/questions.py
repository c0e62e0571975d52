"""Answer the questions that others ask of a private release: NIST SP 800-226, and registries of deployments.

What the run cannot know is None, and is shown as "not answered": its operator must.
"""

from __future__ import annotations

from typing import Any

from sottovoce.statement.evidence import Evidence


def nist_answers(evidence: Evidence) -> list[dict[str, str | None]]:
    """Return questions along the pyramid of NIST SP 800-226, from epsilon down to the collection of data, and answers.

    The words of the questions are ours.
    """
    summary, plan = evidence.summary, evidence.plan
    none = None if evidence.private else "none: the run is not private"
    deployed = bool(summary.get("deployed"))
    unsafe = ", ".join(plan.get("unsafe", [])) or "none"
    population = summary.get("population")
    budget = population.get("budget") if isinstance(population, dict) else None
    rows: list[tuple[str, str | None]] = [
        (
            "Privacy parameters: which epsilon and delta, for all releases together?",
            none
            or f"epsilon {_short(summary.get('epsilon'))} (outsiders), "
            f"{_short(summary.get('epsilon_server'))} (server), delta {summary.get('delta')}, for all "
            f"{plan.get('rounds')} rounds, vote, warm start and measurements included",
        ),
        ("Unit of privacy: whom do neighbouring data sets differ in?", none or str(plan.get("adjacency"))),
        (
            "Composition: are other releases on the same records counted?",
            none or (budget and f"by {budget}") or "no budget file",
        ),
        (
            "Trust model: central, local or distributed?",
            none or f"distributed noise, secure sum: {summary.get('secure')}; outsiders' epsilon trusts the server",
        ),
        (
            "Mechanism: which, and how is sensitivity bounded?",
            none
            or f"{plan.get('mechanism')}, noise {plan.get('noise_multiplier')} clip norms; {plan.get('clipping')} norm",
        ),
        (
            "Accounting: how are releases composed?",
            none or f"{plan.get('accountant')} accountant, {plan.get('sampling')} sampling",
        ),
        (
            "Implementation: floating point, randomness, timing?",
            none
            or ("integers, randomness of the operating system; " if deployed else "simulated noise from a seed; ")
            + "times and real bytes are kept from what is published",
        ),
        ("Exceptions: what is released without a charge?", none or f"unsafe keys: {unsafe}"),
        (
            "Utility: how good is the result?",
            f"accuracy {_short(summary.get('accuracy_final'))}, on {summary.get('test_data')}",
        ),
        ("Bias: is the result worse for some groups?", _worst(summary)),
        ("Security: who can reach records, keys and systems?", None),
        ("Data collection: who collected the records, with whose consent?", None),
        ("Validation: was it tested?", "audited" if evidence.audit else "not audited"),
    ]
    return [{"question": question, "answer": answer} for question, answer in rows]


def model_card(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the sections of a model card (Mitchell et al. 2019); what the run cannot know is None."""
    summary = evidence.summary
    rows: list[tuple[str, Any]] = [
        ("model details", f"{summary.get('parameters', summary.get('dim'))} parameters, {summary.get('scheme')}"),
        ("intended use", None),
        ("factors", "accuracy by class is in the numbers" if summary.get("accuracy_by_class_final") else None),
        ("metrics", f"accuracy {_short(summary.get('accuracy_final'))}"),
        ("evaluation data", summary.get("test_data")),
        ("training data", f"records of {summary.get('clients')} sites, which stay there"),
        ("quantitative analyses", "under Quality"),
        ("ethical considerations", None),
        ("caveats", "under What is not protected"),
    ]
    return [{"section": section, "value": value} for section, value in rows]


def registry_fields(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the entry for the registry of deployments of OpenDP, by the names of its files (deployments/*.yaml).

    What the operator must add has value None.
    """
    summary, plan = evidence.summary, evidence.plan
    private = evidence.private
    parameters = {key: summary.get(key) for key in ("epsilon", "epsilon_server", "delta")} if private else None
    actors = "sites hold records and add noise; the training server sums; outsiders see the model"
    outsiders = "epsilon against outsiders; epsilon_server against the server and the sites that help it"
    rows: list[tuple[str, Any]] = [
        ("basic.name", summary.get("name")),
        ("basic.data_curators", None),
        ("basic.intended_use", None),
        ("basic.data_product_type", "Machine learning model"),
        ("basic.data_product_region", None),
        ("basic.description", f"a model of {summary.get('parameters', summary.get('dim'))} parameters"),
        ("basic.publication_date", None),
        ("basic.data_product_sector", None),
        ("dp_variant.variant_name", "Approximate DP" if private else "none"),
        ("dp_variant.data_domain", None),
        ("dp_variant.unprotected_quantities", "under What is not protected"),
        ("privacy_loss.privacy_unit", f"{summary.get('unit') or 'client'}-level" if private else None),
        ("privacy_loss.privacy_unit_details", plan.get("adjacency")),
        ("privacy_loss.privacy_parameters", parameters),
        ("privacy_loss.privacy_parameters_details", outsiders if private else None),
        ("deployment_model.model_name", "Distributed" if private else None),
        ("deployment_model.model_name_details", f"secure sum: {summary.get('secure')}; sites add noise in shares"),
        ("deployment_model.actors", actors),
        ("deployment_model.release_type", "Many releases"),
        ("deployment_model.release_type_details", f"{summary.get('rounds')} models, all counted"),
        ("deployment_model.data_source_type", "Static"),
        ("deployment_model.access_type", "Non-interactive"),
        ("deployment_model.access_type_details", "the model and the numbers of the run folder are read as files"),
        ("accounting.post_processing", "the optimiser of the server; no charge"),
        ("accounting.composition", f"{plan.get('accountant')} accountant, {plan.get('sampling')} sampling"),
        ("implementation.preprocessing_and_hyperparameter_tuning", summary.get("chosen_on") or "not said"),
        ("implementation.mechanisms", plan.get("mechanism")),
        ("implementation.justification", None),
        ("administrative.sources", f"sottovoce {(evidence.software.get('packages') or {}).get('sottovoce')}"),
        ("administrative.registry_authors", None),
    ]
    return [{"field": field, "value": value} for field, value in rows]


def _worst(summary: dict[str, Any]) -> str | None:
    """Return what the run knows of groups: its classes; of others the operator must answer."""
    worst = (summary.get("quality") or {}).get("worst_class")
    if not isinstance(worst, dict):
        return None
    return (
        f"of classes {worst.get('name')!r} is answered worst, accuracy {_short(worst.get('accuracy'))}; others unknown"
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
