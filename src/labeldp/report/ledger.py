"""A ledger as people read it."""

import math
from pathlib import Path
from typing import Any

from labeldp.errors import LedgerError
from labeldp.printable import printable
from labeldp.reals import exactly
from labeldp.spending import Spending, unpack_rows
from labeldp.vault.filter import Filter
from labeldp.vault.ledger import Entry, Ledger, in_progress, ledger_beside


def ledger_report(path: Path) -> dict[str, Any]:
    """Return the entries and totals of a ledger, named by its own path or by its data's."""
    if path.is_dir():
        raise LedgerError(f"{path} is a folder: name a ledger, or the data that it lies beside.")
    beside = ledger_beside(path)
    chosen = beside if beside.is_file() else path
    if not chosen.is_file():
        raise LedgerError(f"There is no ledger {beside} or {path}.")
    if chosen.suffix in (".csv", ".parquet"):
        raise LedgerError(f"{path} has no ledger beside it: nothing has been spent on it yet.")
    ledger = Ledger(chosen)
    facts, entries = ledger.facts(), ledger.entries()
    lines = [entry.redacted() for entry in entries]
    waiting = "in progress" if in_progress(chosen) else "lost, counted as spent"
    for line in lines:
        line["status"] = {"reserved": waiting, "committed": "done"}[line["status"]]
    return {"ledger": str(chosen), **facts, "spent": _spent(facts, entries), "entries": lines}


def _spent(facts: dict[str, Any], entries: list[Entry]) -> dict[str, Any]:
    """Add up the entries. Who owns which rows is not in the ledger, so for users it is an upper bound.

    No unit was ever charged more than the budget, so that there is no need to state more: but for what has no
    guarantee, which no budget stops.
    """
    exact = facts["unit"] != "user"
    spending = Spending(facts["identity"]["rows"])
    for entry in entries:
        if entry.costs:
            worst = entry.costs[max(entry.costs)]
            spending.add(unpack_rows(entry.rows, facts["identity"]["rows"]) if exact else None, {1: worst})
    accounts = Filter.from_json(facts["budget"])
    epsilon, delta = accounts.guarantee(spending.worst())
    if not exact and math.isfinite(epsilon):
        epsilon, delta = min(epsilon, exactly(accounts.budget.epsilon)), min(delta, exactly(accounts.budget.delta))
    return {"epsilon": float(epsilon), "delta": float(delta), "exact": exact}


def print_ledger(report: dict[str, Any]) -> None:
    """Print a report as a table and a sentence."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD,
        title=Text(printable(f"{report['identity']['name']}: column {report['identity']['label']}")),
        title_justify="left",
    )
    for name in ("when (UTC)", "what", "epsilon", "delta", "rows", "status"):
        right = name in ("epsilon", "delta", "rows")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "status")
    for line in report["entries"]:
        new_budget = line["kind"] == "budget"
        table.add_row(
            Text(printable(line["created"][5:16].replace("T", " "))),
            Text(printable(line["mechanism"])),
            f"{line['to']['epsilon']:g} in all" if new_budget else _number(line["epsilon"]),
            "" if new_budget else f"{line['delta']:g}",
            f"{line['released']:,}" if "released" in line else "",
            line["status"],
        )
    spent, budget, unit = report["spent"], report["budget"], printable(report["unit"])
    left = max(0.0, budget["epsilon"] - spent["epsilon"])
    console = Console()
    console.print(table)
    bound = "" if spent["exact"] else "at most "
    console.print(
        f"Each {unit} has spent {bound}epsilon {_number(spent['epsilon'])} and delta {spent['delta']:g} "
        f"of epsilon {budget['epsilon']:g} and delta {budget['delta']:g}; epsilon {_number(left)} is left.",
        markup=False,
    )


def _number(value: float | str) -> str:
    return f"{float(value):.6g}" if math.isfinite(float(value)) else "infinite"
