"""The audit section of a card: the bounds first, then all other contents of `audit.json`."""

import json
import math
from pathlib import Path
from typing import Any

from labeldp.report.card.blocks import Block, TableBlock
from labeldp.report.card.formatting import format_lower, format_upper, parse_number, percent

_BOUND_FIELDS = ("kind", "lower_bound", "confidence", "stated_epsilon")
_MAX_TEXT = 80

Audits = list[dict[str, Any]] | None


def read_audits(path: Path) -> Audits:
    """Return the audits of a file, which contains one audit, a list, or several by name.

    Notes, and the report of a damaged file, become entries with a `note` only.

    Args:
        path: The file `audit.json` of a run folder.

    Returns:
        The audits; None if there is no file.
    """
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [{"note": f"{path.name} cannot be read: remove it, and audit the run again."}]
    notes = list[dict[str, Any]]()
    if isinstance(data, dict) and isinstance(data.get("audits"), list | dict):
        own_notes = data["notes"] if isinstance(data.get("notes"), list) else []
        notes = [{"note": str(note)} for note in [*own_notes, *_describe_origin(data)]]
        data = data["audits"]
    if isinstance(data, dict) and data and all(isinstance(each, dict) for each in data.values()):
        data = [{"kind": name} | each for name, each in data.items()]
    return [each for each in (data if isinstance(data, list) else [data]) if isinstance(each, dict)] + notes


def _describe_origin(data: dict[str, Any]) -> list[str]:
    """Describe when and how the audits of a file were made."""
    date_text = f" on {str(data['created'])[:10]}" if "created" in data else ""
    n_trainings = parse_number(data.get("trainings"))
    training_text = "" if n_trainings is None else f" in {n_trainings:g} training{'s' * (n_trainings != 1)}"
    n_rows = parse_number(data.get("rows"))
    row_text = "" if n_rows is None else f" of {n_rows:,.0f} rows"
    return [f"Made{date_text}{training_text}{row_text}."] if date_text or training_text else []


def proven_epsilon(audits: Audits) -> float | None:
    """Return the largest lower bound of epsilon of all audits; None if there is none."""
    bounds = [parse_number(each.get("lower_bound")) for each in audits or []]
    return max((value for value in bounds if value is not None), default=None)


def contradicts(audits: Audits, epsilon: float) -> bool:
    """Whether an audit proves a larger epsilon than the stated one."""
    lower = proven_epsilon(audits)
    return lower is not None and lower > epsilon * (1 + 1e-9)


def audit_blocks(audits: Audits, epsilon: float, is_numeric: bool = False) -> list[Block]:
    """Return the results of audits, or a note that there is none."""
    if not audits and is_numeric:
        return [
            "Not audited: the stated epsilon relies on its proofs alone. Mechanisms for numeric labels can be audited "
            "by name; a whole training on numeric labels cannot be audited yet."
        ]
    if not audits:
        return [
            "Not audited: the stated epsilon relies on its proofs alone. An audit attacks the training of a run folder "
            "and computes a lower bound of epsilon from the outcome."
        ]
    notes, audits = [each for each in audits if "note" in each], [each for each in audits if "note" not in each]
    blocks, lower = list[Block](), proven_epsilon(audits)
    if lower is not None:
        blocks.append(_bound_sentence(lower, epsilon))
        blocks.append(
            "An audit attacks the training and computes a lower bound of epsilon from its success. It gives no upper "
            "bound: a low value may mean strong privacy or a weak attack."
        )
    blocks += [sentence for each in audits if (sentence := _inference_sentence(each))]
    blocks += [str(each["note"]) for each in notes]
    bounds = tuple(_format_row(each, epsilon) for each in audits if parse_number(each.get("lower_bound")) is not None)
    if bounds:
        blocks.append(
            TableBlock("Bounds on epsilon", ("Audit", "Proven at least", "Confidence", "Stated at most"), bounds)
        )
    for each in audits:
        details = tuple(
            (_words(name), _format_value(value)) for name, value in each.items() if name not in _BOUND_FIELDS
        )
        if details:
            blocks.append(TableBlock(f"Details of the audit: {_kind(each)}", ("What", "Value"), details))
    return blocks


def _bound_sentence(lower: float, epsilon: float) -> str:
    bound = format_lower(lower)
    if lower <= 0:
        return (
            "The attack found nothing and proves no privacy loss. This is consistent with the stated epsilon, but is "
            "not a proof of it."
        )
    if lower > epsilon * (1 + 1e-9):
        return f"THE AUDIT CONTRADICTS THE STATED EPSILON: it proves at least {bound}. Do not rely on this card."
    if math.isinf(epsilon):
        return f"The audit proves that epsilon is at least {bound}; there is no upper bound."
    return f"The true epsilon lies between {bound}, which the audit proves, and the stated {format_upper(epsilon)}."


def _inference_sentence(audit: dict[str, Any]) -> str:
    """Describe how well an attacker guesses labels with the model and without, if an audit measured it."""
    rates = {name: parse_number(audit.get(name)) for name in ("attack", "features_alone", "allowed")}
    attack, baseline, allowed = rates.values()
    if attack is None or baseline is None:
        return ""
    bound = "" if allowed is None else f"; the stated epsilon allows {percent(max(allowed, 0.0))} more"
    return (
        f"Label inference: an attacker guesses {percent(attack)} of labels with the model, and {percent(baseline)} "
        f"without its training on them{bound}."
    )


def _format_row(audit: dict[str, Any], epsilon: float) -> tuple[str, ...]:
    lower, confidence = parse_number(audit.get("lower_bound")), parse_number(audit.get("confidence"))
    stated = parse_number(audit.get("stated_epsilon"))
    return (
        _kind(audit),
        format_lower(lower or 0.0),
        "unknown" if confidence is None else f"{100 * confidence:g}%",
        format_upper(epsilon if stated is None else stated),
    )


def _kind(audit: dict[str, Any]) -> str:
    return _format_value(audit.get("kind", "unnamed"))


def _words(name: str) -> str:
    return str(name).replace("_", " ")


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list) and len(value) == 3 and None not in value and value[1] <= value[0] <= value[2]:
        return f"{_format_value(value[0])} ({_format_value(value[1])} to {_format_value(value[2])})"
    if isinstance(value, list) and value and all(isinstance(inner, int | float) for inner in value[:9]):
        return ", ".join(map(_format_value, value[:9])) + (", ..." if len(value) > 9 else "")
    if isinstance(value, dict) and value and all(isinstance(inner, int | float) for inner in value.values()):
        return "; ".join(f"{name}: {_format_value(inner)}" for name, inner in value.items())
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."
