"""Bring a ledger of format 2, which had tables of facts and entries, into the present format.

The new file is written beside the old one, verified, and put in its place by one rename. The old file stays beside it
with the suffix `.format-2`. Every entry keeps its id, its costs and its rows, so that no total changes.
"""

import json
import os
import shutil
import sqlite3
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labeldp.accounting.costs import Cost
from labeldp.core.errors import LedgerError
from labeldp.privacy.vault.chain import parse_costs
from labeldp.privacy.vault.entries import Entry

_OLD_FORMAT = 2
_OLD_TABLES = {"labeldp_dataset", "labeldp_entries", "labeldp_payloads"}
_DEFAULT_NAMES = ("estimator", "y")  # what estimators called their data and every label


def is_old_format(tables: set[str]) -> bool:
    """Whether a database with these tables is a ledger of the format before."""
    return tables >= _OLD_TABLES


def migrate(file: Path) -> None:
    """Replace a ledger of format 2 by one of the present format; the caller holds its lock.

    Args:
        file: The ledger. It is untouched if anything goes wrong.

    Raises:
        LedgerError: It is of another format, or the result would state another cost.
    """
    from labeldp.privacy.vault.ledger import Ledger

    new_file, backup = file.with_name(f".{file.name}.migrating"), file.with_name(f"{file.name}.format-2")
    for leftover in (
        new_file,
        new_file.with_name(f"{new_file.name}-journal"),
        new_file.with_name(f"{new_file.name}.lock"),
    ):
        leftover.unlink(missing_ok=True)
    with sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True) as old:
        facts = {key: json.loads(value) for key, value in old.execute("SELECT key, value FROM labeldp_dataset")}
        if facts.pop("format", None) != _OLD_FORMAT:
            raise LedgerError(f"{file} was written by another version of labeldp: use that version.")
        ledger = Ledger(new_file)
        costs_by_entry = _copy_entries(old, facts, ledger)
    stored_costs = {entry.id: entry.costs for entry in Ledger(new_file).entries() if entry.costs}
    if stored_costs != costs_by_entry:
        raise LedgerError(f"{file} could not be migrated: its entries would state another cost.")
    _copy_durably(file, backup)
    os.replace(new_file, file)
    new_file.with_name(f"{new_file.name}.lock").unlink(missing_ok=True)
    _sync(file.parent)


def _copy_entries(old: sqlite3.Connection, facts: dict[str, Any], ledger: Any) -> dict[str, Mapping[int, Cost]]:
    """Copy facts, entries and releases; return the costs by entry."""
    identity = facts["identity"]
    if (identity["name"], identity["label"]) == _DEFAULT_NAMES:
        identity = identity | {"label": None}
    facts = facts | {"identity": identity, "mark": facts.get("mark") or uuid.uuid4().hex}
    costs_by_entry: dict[str, Mapping[int, Cost]] = {}
    columns = "id, kind, status, request, details, costs, rows, created, finished"
    records = old.execute(f"SELECT {columns} FROM labeldp_entries ORDER BY number").fetchall()  # noqa: S608
    ledger.open(facts | {"budget": _first_budget(records, facts["budget"])}, lambda chain: None)
    for entry_id, kind, status, request, details, costs, packed, created, _ in records:
        entry_details, entry_costs = json.loads(details), parse_costs(costs)
        if kind == "budget":
            ledger.change_budget({"from": entry_details["from"], "to": entry_details["to"]})
            continue
        if bool(entry_costs) == (kind == "step"):  # a plan has paid for its steps, and nothing else was free
            raise ValueError("an entry has lost its cost")
        costs_by_entry |= {entry_id: entry_costs} if entry_costs else {}
        entry = Entry(kind, request, entry_details, entry_costs, label=identity["label"], id=entry_id, created=created)
        ledger.reserve(entry, packed, lambda chain: None)
        if status == "committed":
            query = "SELECT data FROM labeldp_payloads WHERE entry = ? ORDER BY part"
            ledger.commit(entry_id, b"".join(data for (data,) in old.execute(query, (entry_id,))))
    if ledger.facts()["budget"] != facts["budget"]:
        ledger.change_budget({"from": ledger.facts()["budget"], "to": facts["budget"]})
    return costs_by_entry


def _first_budget(records: list[Any], last_budget: dict[str, Any]) -> dict[str, Any]:
    """Return the budget before all changes."""
    changes = [json.loads(record[4]) for record in records if record[1] == "budget"]
    return changes[0]["from"] if changes else last_budget


def _copy_durably(source: Path, target: Path) -> None:
    partial = target.with_name(f".{target.name}.partial")
    shutil.copy2(source, partial)
    _sync(partial)
    os.replace(partial, target)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
