"""The ledger section of a card: the cost of each release of a training, and the module with its proof."""

import math
from collections.abc import Sequence
from typing import Any

from labeldp.report.card.blocks import Block, TableBlock
from labeldp.report.card.formatting import format_upper
from labeldp.report.card.proofs import SELECTORS, describe_mechanism, proof_title, proofs

# The maximum number of other uses in the list.
_MAX_OTHER_USES = 20
_HEADER = ("Mechanism", "Used for", "Labels", "Epsilon", "Delta", "Proof")


def mark_own_entries(ledger: Sequence[dict[str, Any]], own_ids: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the entries except changes of the budget, each with `own` and `purpose`.

    A plan belongs to the model if one of its steps does. Scores of a model are the releases whose origin is the set of
    all its releases. Of several such scores, the last of each kind belongs to this model.

    Args:
        ledger: The redacted entries.
        own_ids: The ids of the releases of the model; None if all entries belong to it.
    """
    own_names = {name for joined in own_ids or () for name in joined.split(",")}
    plan_ids = {str(each["step"]).rpartition(":")[0] for each in ledger if each.get("step") and each["id"] in own_names}
    marked = []
    for entry in ledger:
        if entry.get("kind") == "budget":
            continue
        origin = entry.get("origin")
        is_score = (
            bool(own_names) and isinstance(origin, list) and set(origin) == own_names and entry["id"] not in own_names
        )
        is_own = own_ids is None or entry["id"] in own_names | plan_ids or is_score
        is_selection = entry.get("mechanism") in SELECTORS
        purpose = "scoring" if is_score else "choosing a model" if is_selection else "training"
        marked.append(entry | {"own": is_own, "purpose": purpose if is_own else "another use"})
    last_ids = {_score_kind(each): each["id"] for each in marked if each["purpose"] == "scoring"}
    for each in marked:
        if each["purpose"] == "scoring" and last_ids[_score_kind(each)] != each["id"]:
            each |= {"own": False, "purpose": "another use"}
    return marked


def _score_kind(entry: dict[str, Any]) -> tuple[Any, Any]:
    """Return the kind of a score: its mechanism and, because one mechanism measures two errors, the objective."""
    return entry["mechanism"], (entry.get("parameters") or {}).get("objective")


def ledger_blocks(ledger: list[dict[str, Any]], releases: Sequence[dict[str, Any]], unit: str = "label") -> list[Block]:
    """Return the releases with their costs, what each mechanism releases, and the proofs."""
    if not ledger:  # only the facts in the report
        ledger = [each | {"own": True, "purpose": "training", "released": each.get("rows")} for each in releases]
    own, others = ([each for each in ledger if each["own"] is is_own] for is_own in (True, False))
    descriptions = [
        f"{name}: {describe_mechanism(name)}" for name in dict.fromkeys(str(each.get("mechanism")) for each in own)
    ]
    blocks: list[Block] = [
        TableBlock("Releases of labels for this model", _HEADER, tuple(map(_format_row, own))),
        *descriptions,
    ]
    if len(own) > 1:
        unit_name, parts = ("user", "users") if unit == "user" else ("label", "rows")
        blocks.append(
            f"A {unit_name} is charged only for the releases that include it: releases of different {parts} do not "
            "add up."
        )
    blocks += _proof_blocks(own)
    if others:
        rows = tuple(map(_format_row, others[-_MAX_OTHER_USES:]))
        blocks.append(TableBlock("Other uses of labels of the same data set", _HEADER, rows))
    if len(others) > _MAX_OTHER_USES:
        blocks.append(
            f"Of {len(others):,} other uses the last {_MAX_OTHER_USES} are shown: the ledger of the data set lists all."
        )
    return blocks


def _format_row(entry: dict[str, Any]) -> tuple[str, ...]:
    n_rows = entry.get("released")
    status_note = "" if entry.get("status", "committed") == "committed" else " (not finished, counted as spent)"
    is_step = entry.get("kind") == "step"
    return (
        str(entry.get("mechanism")),
        entry["purpose"] + status_note,
        "unknown" if n_rows is None else f"{n_rows:,}",
        "in its plan" if is_step else format_upper(float(entry["epsilon"])),
        "in its plan" if is_step else f"{float(entry.get('delta') or 0):g}",
        _proof_names(entry),
    )


def _proof_names(entry: dict[str, Any]) -> str:
    modules = ", ".join(f"`{module}`" for module in proofs(entry)) or "unknown to this version"
    return modules if math.isfinite(float(entry["epsilon"])) else f"NONE; reason: {modules}"


def _proof_blocks(entries: Sequence[dict[str, Any]]) -> list[Block]:
    """Return a table of the proofs, each with its first line."""
    modules = dict.fromkeys(module for entry in entries for module in proofs(entry))
    if not modules:
        return []
    rows = tuple((f"`{module}`", proof_title(module)) for module in modules)
    caption = "Proofs: each is in the docstring of a module of labeldp"
    return [TableBlock(caption, ("Module", "About"), rows)]
