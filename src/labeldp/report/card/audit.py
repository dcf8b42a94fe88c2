"""Audits as a card shows them: whatever `audit.json` holds, the bounds first."""

import json
import math
from pathlib import Path
from typing import Any

from labeldp.report.card.blocks import Block, Table
from labeldp.report.card.numbers import at_least, at_most, number, percent

_FIRST = ("kind", "lower_bound", "confidence", "stated_epsilon")
_LONGEST = 80

Audits = list[dict[str, Any]] | None


def read_audits(path: Path) -> Audits:
    """Return the audits of a file: one, a list of them, or several by name. None without a file.

    What is no audit becomes an entry with a `note` alone.
    """
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [{"note": f"{path.name} cannot be read: remove it, and run `labeldp audit` again."}]
    notes = list[dict[str, Any]]()
    if isinstance(data, dict) and isinstance(data.get("audits"), list | dict):
        said = data["notes"] if isinstance(data.get("notes"), list) else []
        notes = [{"note": str(note)} for note in [*said, *_made(data)]]
        data = data["audits"]
    if isinstance(data, dict) and data and all(isinstance(each, dict) for each in data.values()):
        data = [{"kind": name} | each for name, each in data.items()]
    return [each for each in (data if isinstance(data, list) else [data]) if isinstance(each, dict)] + notes


def _made(data: dict[str, Any]) -> list[str]:
    """Say when and how the audits of a file were made."""
    when = f" on {str(data['created'])[:10]}" if "created" in data else ""
    count = number(data.get("trainings"))
    how = "" if count is None else f" in {count:g} training{'s' * (count != 1)}"
    rows = number(data.get("rows"))
    of = "" if rows is None else f" of {rows:,.0f} rows"
    return [f"Made{when}{how}{of}."] if when or how else []


def proven(audits: Audits) -> float | None:
    """Return the largest epsilon that any audit proves the training to lose at least."""
    found = [number(each.get("lower_bound")) for each in audits or []]
    return max((value for value in found if value is not None), default=None)


def contradicts(audits: Audits, epsilon: float) -> bool:
    """Whether an audit proves more than is stated."""
    lower = proven(audits)
    return lower is not None and lower > epsilon * (1 + 1e-9)


def audit_blocks(audits: Audits, epsilon: float, numbers: bool = False) -> list[Block]:
    """Say what audits found, or that there was none."""
    if not audits and numbers:
        return [
            "Not audited: the stated epsilon rests on its proofs alone. `labeldp audit --mechanism` attacks mechanisms "
            "for numbers by name; a training on numbers cannot be attacked as a whole yet."
        ]
    if not audits:
        return [
            "Not audited: the stated epsilon rests on its proofs alone. `labeldp audit` attacks the training of a run "
            "folder, and proves from the outcome how much is lost at least."
        ]
    notes, audits = [each for each in audits if "note" in each], [each for each in audits if "note" not in each]
    blocks, lower = list[Block](), proven(audits)
    if lower is not None:
        blocks.append(_sentence(lower, epsilon))
        blocks.append(
            "An audit attacks the training and proves from its success how much is lost at least. It cannot prove that "
            "no more is lost: a low bound may mean strong privacy, or a weak attack."
        )
    blocks += [sentence for each in audits if (sentence := _inference(each))]
    blocks += [str(each["note"]) for each in notes]
    bounds = tuple(_row(each, epsilon) for each in audits if number(each.get("lower_bound")) is not None)
    if bounds:
        blocks.append(Table("Bounds on epsilon", ("Audit", "Proven at least", "Confidence", "Stated at most"), bounds))
    for each in audits:
        details = tuple((_words(name), _short(value)) for name, value in each.items() if name not in _FIRST)
        if details:
            blocks.append(Table(f"Details of the audit: {_kind(each)}", ("What", "Value"), details))
    return blocks


def _sentence(lower: float, epsilon: float) -> str:
    bound = at_least(lower)
    if lower <= 0:
        return "The attack found nothing, and proves no loss. That agrees with what is stated, and is no proof of it."
    if lower > epsilon * (1 + 1e-9):
        return f"THE AUDIT CONTRADICTS THE STATED EPSILON: it proves at least {bound}. Do not rely on this card."
    if math.isinf(epsilon):
        return f"The audit proves that epsilon is at least {bound}; nothing bounds it from above."
    return f"The true epsilon lies between {bound}, which the audit proves, and the stated {at_most(epsilon)}."


def _inference(audit: dict[str, Any]) -> str:
    """Say how much better a guesser does with the model, where an audit measured that."""
    share = {name: number(audit.get(name)) for name in ("attack", "features_alone", "allowed")}
    attack, alone, allowed = share.values()
    if attack is None or alone is None:
        return ""
    bound = "" if allowed is None else f"; the stated epsilon allows {percent(max(allowed, 0.0))} more"
    return (
        f"Guessing labels: right for {percent(attack)} of rows by whoever sees the model, and for {percent(alone)} "
        f"without its training on them{bound}."
    )


def _row(audit: dict[str, Any], epsilon: float) -> tuple[str, ...]:
    lower, sure = number(audit.get("lower_bound")), number(audit.get("confidence"))
    stated = number(audit.get("stated_epsilon"))
    return (
        _kind(audit),
        at_least(lower or 0.0),
        "not said" if sure is None else f"{100 * sure:g}%",
        at_most(epsilon if stated is None else stated),
    )


def _kind(audit: dict[str, Any]) -> str:
    return _short(audit.get("kind", "unnamed"))


def _words(name: str) -> str:
    return str(name).replace("_", " ")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list) and len(value) == 3 and None not in value and value[1] <= value[0] <= value[2]:
        return f"{_short(value[0])} ({_short(value[1])} to {_short(value[2])})"
    if isinstance(value, list) and value and all(isinstance(inner, int | float) for inner in value[:9]):
        return ", ".join(map(_short, value[:9])) + (", ..." if len(value) > 9 else "")
    if isinstance(value, dict) and value and all(isinstance(inner, int | float) for inner in value.values()):
        return "; ".join(f"{name}: {_short(inner)}" for name, inner in value.items())
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
