"""What a reader of a card must be warned of, beside what the training itself warned of."""

import math
from typing import Any

from labeldp.report.card.audit import contradicts
from labeldp.report.card.formatting import format_upper
from labeldp.report.card.score import uses_clean_labels

NOT_PRIVATE = (
    "NOTHING IS PROTECTED. This training is not differentially private: epsilon is infinite. It was done to study a "
    "claim that does not hold; do not use it on labels of real people."
)
CONTRADICTED = (
    "THE AUDIT CONTRADICTS THE STATED EPSILON. An attack on this training proves, with the confidence of the audit, "
    "that it loses more than is stated: rely on nothing below until that is explained."
)


def alert(epsilon: float, audits: list[dict[str, Any]] | None) -> str:
    """Return what must stand above everything else, or nothing."""
    if math.isinf(epsilon):
        return NOT_PRIVATE
    return CONTRADICTED if contradicts(audits, epsilon) else ""


def warnings(facts: dict[str, Any], stated: tuple[float, float]) -> list[str]:
    """Return all warnings: those of the training, then what its report shows."""
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
    if "data-dependent" not in derivation or "sanitised" in derivation.replace("unsanitised", ""):
        return []
    return [
        "The stated epsilon depends on the secret votes and was not sanitised: the figure itself tells about labels, "
        "and is no guarantee. Publish the data-independent figure, or one drawn by `labeldp account --sanitise`."
    ]


def _spending_warnings(facts: dict[str, Any], stated: tuple[float, float]) -> list[str]:
    """Warn if the labels were used for more than this training: what was learnt of them adds up."""
    spent = facts.get("spent")
    if spent is None or (float(spent["epsilon"]), float(spent["delta"])) == stated:
        return []
    return [
        f"These labels were used for more than this training: epsilon {format_upper(float(spent['epsilon']))} and delta "
        f"{float(spent['delta']):g} in all, by the ledger of the data set. Whoever sees all of it can gain that much."
    ]


def _clean_label_warnings(facts: dict[str, Any]) -> list[str]:
    if not uses_clean_labels(facts.get("score") or {}):
        return []
    return [
        "A score on this card was measured on clean labels: publishing it tells about those labels, and no epsilon "
        "accounts for it."
    ]


def _is_score(entry: dict[str, Any]) -> bool:
    """Whether an entry measured a model: one of each score counts."""
    is_squared = (entry.get("parameters") or {}).get("objective") == "squared"
    return entry.get("mechanism") == "CorrectCount" or (entry.get("mechanism") == "LossSum" and is_squared)


def _tuning_warnings(facts: dict[str, Any]) -> list[str]:
    """Warn if other models on the same labels were scored, because the best of several scores is partly luck."""
    others = [each for each in facts.get("ledger", []) if _is_score(each) and not each["own"]]
    if not others:
        return []
    count_text = f"{len(others)} other model{'s were' if len(others) > 1 else ' was'}"
    return [
        f"{count_text} scored on labels of this data set. If this one was kept because its score was best, the score is "
        "partly luck: let a private choice decide (the recipe `auto`, or LabelPrivateSearchCV)."
    ]
