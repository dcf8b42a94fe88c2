"""The ledger as a card shows it: what each release of this training cost, and where that is proved."""

import math
from collections.abc import Sequence
from typing import Any

from labeldp.report.card.blocks import Block, Table
from labeldp.report.card.numbers import at_most
from labeldp.report.card.proofs import CHOICES, proof_title, proofs, what_it_tells

_MOST = 20  # other uses that are listed one by one
_HEAD = ("Mechanism", "Used for", "Labels", "Epsilon", "Delta", "Proof")


def mark_own(ledger: Sequence[dict[str, Any]], own: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the entries but changes of the budget, each with `own` and `purpose`.

    A plan is the model's own if one of its steps is. A model is scored by releases that name all the model's releases
    as their origin; of several such scores the last of each kind is this model's. Without a list of its releases, all
    entries are taken for its own.
    """
    named = {name for each in own or () for name in each.split(",")}
    plans = {str(each["step"]).rpartition(":")[0] for each in ledger if each.get("step") and each["id"] in named}
    marked = []
    for entry in ledger:
        if entry.get("kind") == "budget":
            continue
        origin = entry.get("origin")
        scores = bool(named) and isinstance(origin, list) and set(origin) == named and entry["id"] not in named
        mine = own is None or entry["id"] in named | plans or scores
        chosen = entry.get("mechanism") in CHOICES
        purpose = "scoring" if scores else "choosing a model" if chosen else "training"
        marked.append(entry | {"own": mine, "purpose": purpose if mine else "another use"})
    last = {_kind(each): each["id"] for each in marked if each["purpose"] == "scoring"}
    for each in marked:
        if each["purpose"] == "scoring" and last[_kind(each)] != each["id"]:
            each |= {"own": False, "purpose": "another use"}
    return marked


def _kind(entry: dict[str, Any]) -> tuple[Any, Any]:
    """Tell scores of different kinds apart: errors are measured by one mechanism for two losses."""
    return entry["mechanism"], (entry.get("parameters") or {}).get("objective")


def ledger_blocks(ledger: list[dict[str, Any]], releases: Sequence[dict[str, Any]], unit: str = "label") -> list[Block]:
    """Say, mechanism by mechanism, what was told and at which price."""
    if not ledger:  # only what the report says
        ledger = [each | {"own": True, "purpose": "training", "released": each.get("rows")} for each in releases]
    own, others = ([each for each in ledger if each["own"] is mine] for mine in (True, False))
    told = [f"{name}: {what_it_tells(name)}" for name in dict.fromkeys(str(each.get("mechanism")) for each in own)]
    blocks: list[Block] = [Table("What was released of the labels for this model", _HEAD, tuple(map(_row, own))), *told]
    if len(own) > 1:
        who, apart = ("user", "users") if unit == "user" else ("label", "rows")
        blocks.append(
            f"A {who} pays for the releases that it was part of, and for no other: different {apart} do not add up."
        )
    blocks += _proofs(own)
    if others:
        rows = tuple(map(_row, others[-_MOST:]))
        blocks.append(Table("Other uses of labels of the same data set", _HEAD, rows))
    if len(others) > _MOST:
        blocks.append(f"Of {len(others):,} other uses the last {_MOST} are shown: `labeldp ledger show` lists all.")
    return blocks


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    rows = entry.get("released")
    lost = "" if entry.get("status", "committed") == "committed" else " (not finished, counted as spent)"
    step = entry.get("kind") == "step"
    return (
        str(entry.get("mechanism")),
        entry["purpose"] + lost,
        "not said" if rows is None else f"{rows:,}",
        "in its plan" if step else at_most(float(entry["epsilon"])),
        "in its plan" if step else f"{float(entry.get('delta') or 0):g}",
        _where(entry),
    )


def _where(entry: dict[str, Any]) -> str:
    modules = ", ".join(f"`{module}`" for module in proofs(entry)) or "unknown to this version"
    return modules if math.isfinite(float(entry["epsilon"])) else f"NONE; why there is none: {modules}"


def _proofs(entries: Sequence[dict[str, Any]]) -> list[Block]:
    """Name the proofs by their first lines."""
    modules = dict.fromkeys(module for entry in entries for module in proofs(entry))
    if not modules:
        return []
    rows = tuple((f"`{module}`", proof_title(module)) for module in modules)
    caption = "Proofs: each stands in the text at the top of a module of labeldp"
    return [Table(caption, ("Module", "About"), rows)]
