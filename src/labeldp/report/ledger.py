"""A ledger as people read it."""

import math
from pathlib import Path
from typing import Any

from labeldp.accounting.costs import Spending, unpack_rows
from labeldp.accounting.filter import Filter
from labeldp.core.errors import LedgerError
from labeldp.core.exact_real import exactly
from labeldp.core.printable import printable
from labeldp.privacy.vault.chain import Chain
from labeldp.privacy.vault.ledger import Ledger, in_progress, ledger_beside


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
    chain = ledger.snapshot()
    lines = [entry.redacted() for entry in chain.entries()]
    waiting = "in progress" if in_progress(chosen) else "interrupted, counted as spent"
    words = {"reserved": waiting, "committed": "done", "failed": "failed, counted as spent"}
    for line in lines:
        line["status"] = words[line["status"]]
    return {"ledger": str(chosen), **chain.facts, "spent": _spent(ledger, chain), "entries": lines}


def _spent(ledger: Ledger, chain: Chain) -> dict[str, Any]:
    """Add up the entries. Who owns which rows is not in the ledger, so for users it is an upper bound.

    No unit was ever charged more than the budget, so that there is no need to state more: but for what has no
    guarantee, which no budget stops.
    """
    exact, rows = chain.facts["unit"] != "user", chain.facts["identity"]["rows"]
    spending = Spending(rows)
    for entry in chain.entries():
        if entry.costs:
            row_set = entry.row_set if exact else ""
            spending.add(unpack_rows(ledger.rows(row_set), rows), {1: entry.costs[max(entry.costs)]}, row_set)
    accounts = Filter.from_json(chain.facts["budget"])
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

    labels = list(dict.fromkeys(line["label"] for line in report["entries"] if line["kind"] != "budget"))
    named = labels[0] if len(labels) == 1 else report["identity"]["label"] if not labels else None
    title = report["identity"]["name"] + (f": column {named}" if named is not None else "")
    table = Table(box=SIMPLE_HEAD, title=Text(printable(title)), title_justify="left")
    for name in ("when (UTC)", *["label"] * (len(labels) > 1), "what", "epsilon", "delta", "rows", "status"):
        right = name in ("epsilon", "delta", "rows")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "status")
    for line in report["entries"]:
        new_budget = line["kind"] == "budget"
        table.add_row(
            Text(printable(line["created"][5:16].replace("T", " "))),
            *[Text(printable(line["label"] or ""))] * (len(labels) > 1),
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
