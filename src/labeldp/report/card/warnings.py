"""Warnings of a card, in addition to those of the training."""

import math
from typing import Any

from labeldp.report.card.audit import contradicts
from labeldp.report.card.formatting import format_upper
from labeldp.report.card.score import uses_clean_labels

NOT_PRIVATE = (
    "NOTHING IS PROTECTED. This training is not differentially private: epsilon is infinite. It is a study of a false "
    "privacy claim: do not use it on labels of real people."
)
CONTRADICTED = (
    "THE AUDIT CONTRADICTS THE STATED EPSILON. An attack on this training proves, with the confidence of the audit, "
    "that its privacy loss exceeds the stated epsilon: do not rely on this card until the reason is known."
)


def alert(epsilon: float, audits: list[dict[str, Any]] | None) -> str:
    """Return the warning that precedes all sections; empty if there is none."""
    if math.isinf(epsilon):
        return NOT_PRIVATE
    return CONTRADICTED if contradicts(audits, epsilon) else ""


def warnings(facts: dict[str, Any], stated: tuple[float, float]) -> list[str]:
    """Return all warnings: an audit that contradicts epsilon, those of the training, and those of its report."""
    audited = [CONTRADICTED] if contradicts(facts.get("audits"), stated[0]) else []
    own = [
        *_derivation_warnings(facts),
        *_spending_warnings(facts, stated),
        *_clean_label_warnings(facts),
        *_tuning_warnings(facts),
    ]
    return [*audited, *facts.get("warnings", []), *own]


def _derivation_warnings(facts: dict[str, Any]) -> list[str]:
    derivation = str(facts["guarantee"].get("derivation", "")).lower()
    if "data-dependent" not in derivation or "sanitized" in derivation.replace("unsanitized", ""):
        return []
    return [
        "The stated epsilon depends on the secret votes and was not sanitized: the number itself reveals information "
        "about labels and is no guarantee. Publish the data-independent epsilon, or a sanitized one."
    ]


def _spending_warnings(facts: dict[str, Any], stated: tuple[float, float]) -> list[str]:
    """Warn if the labels were used for more than this training, because privacy losses add up."""
    spent = facts.get("spent")
    if spent is None or (float(spent["epsilon"]), float(spent["delta"])) == stated:
        return []
    return [
        f"These labels were used for more than this training: epsilon {format_upper(float(spent['epsilon']))} and "
        f"delta {float(spent['delta']):g} in all, according to the ledger of the data set. This is the privacy loss of "
        "all uses together."
    ]


def _clean_label_warnings(facts: dict[str, Any]) -> list[str]:
    if not uses_clean_labels(facts.get("score") or {}):
        return []
    return [
        "A score on this card was measured on clean labels: publishing it reveals information about those labels "
        "that no epsilon accounts for."
    ]


def _is_score(entry: dict[str, Any]) -> bool:
    """Whether an entry is the main release of a score of a model."""
    is_squared = (entry.get("parameters") or {}).get("objective") == "squared"
    return entry.get("mechanism") == "CorrectCount" or (entry.get("mechanism") == "LossSum" and is_squared)


def _tuning_warnings(facts: dict[str, Any]) -> list[str]:
    """Warn if other models on the same labels were scored, because the best of several scores is biased."""
    others = [each for each in facts.get("ledger", []) if _is_score(each) and not each["own"]]
    if not others:
        return []
    count_text = f"{len(others)} other model{'s were' if len(others) > 1 else ' was'}"
    return [
        f"{count_text} scored on labels of this data set. If this one was selected for its score, the score is "
        "biased upward: use a private selection (the recipe `auto`, or LabelPrivateSearchCV)."
    ]
