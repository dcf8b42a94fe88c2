"""The entries and totals of a ledger, as data and as a table."""

import math
from pathlib import Path
from typing import Any

from labeldp.accounting.costs import Spending, unpack_rows
from labeldp.accounting.filter import PrivacyFilter
from labeldp.core.errors import LedgerError
from labeldp.core.exact_real import as_fraction
from labeldp.core.printable import escape_control_characters
from labeldp.privacy.vault.chain import Chain
from labeldp.privacy.vault.ledger import Ledger, default_ledger_path, is_in_use


def read_ledger_report(path: Path) -> dict[str, Any]:
    """Return the entries and totals of a ledger.

    Args:
        path: The path of the ledger, or of the data file that it belongs to.
    """
    if path.is_dir():
        raise LedgerError(f"{path} is a folder: name a ledger, or the data file that it belongs to.")
    adjacent = default_ledger_path(path)
    ledger_path = adjacent if adjacent.is_file() else path
    if not ledger_path.is_file():
        raise LedgerError(f"There is no ledger {adjacent} or {path}.")
    if ledger_path.suffix in (".csv", ".parquet"):
        raise LedgerError(f"{path} has no ledger: nothing has been spent on it yet.")
    ledger = Ledger(ledger_path)
    chain = ledger.snapshot()
    entries = [entry.to_redacted_json() for entry in chain.entries()]
    pending_status = "in progress" if is_in_use(ledger_path) else "interrupted, counted as spent"
    status_texts = {"reserved": pending_status, "committed": "done", "failed": "failed, counted as spent"}
    for record in entries:
        record["status"] = status_texts[record["status"]]
    return {"ledger": str(ledger_path), **chain.facts, "spent": _total_spent(ledger, chain), "entries": entries}


def _total_spent(ledger: Ledger, chain: Chain) -> dict[str, Any]:
    """Add up the costs of the entries. For users the sum is an upper bound: the ledger does not know who owns a row.

    No unit is ever charged more than the budget, so the bound is at most the budget. Releases without a guarantee are
    an exception: their epsilon is infinite.
    """
    is_exact, n_rows = chain.facts["unit"] != "user", chain.facts["identity"]["n_rows"]
    spending = Spending(n_rows)
    for entry in chain.entries():
        if entry.costs:
            row_set = entry.row_set if is_exact else ""
            spending.add(unpack_rows(ledger.packed_rows(row_set), n_rows), {1: entry.costs[max(entry.costs)]}, row_set)
    privacy_filter = PrivacyFilter.from_json(chain.facts["budget"])
    epsilon, delta = privacy_filter.guarantee(spending.max_cost())
    if not is_exact and math.isfinite(epsilon):
        epsilon = min(epsilon, as_fraction(privacy_filter.budget.epsilon))
        delta = min(delta, as_fraction(privacy_filter.budget.delta))
    return {"epsilon": float(epsilon), "delta": float(delta), "exact": is_exact}


def print_ledger(report: dict[str, Any]) -> None:
    """Print a report of `read_ledger_report` as a table and a sentence."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    labels = list(dict.fromkeys(entry["label"] for entry in report["entries"] if entry["kind"] != "budget"))
    label = labels[0] if len(labels) == 1 else report["identity"]["label"] if not labels else None
    title = report["identity"]["name"] + (f": column {label}" if label is not None else "")
    table = Table(box=SIMPLE_HEAD, title=Text(escape_control_characters(title)), title_justify="left")
    for name in ("when (UTC)", *["label"] * (len(labels) > 1), "entry", "epsilon", "delta", "rows", "status"):
        is_numeric = name in ("epsilon", "delta", "rows")
        table.add_column(name, justify="right" if is_numeric else "left", no_wrap=name != "status")
    for entry in report["entries"]:
        new_budget = entry["kind"] == "budget"
        table.add_row(
            Text(escape_control_characters(entry["created"][5:16].replace("T", " "))),
            *[Text(escape_control_characters(entry["label"] or ""))] * (len(labels) > 1),
            Text(escape_control_characters(entry["mechanism"])),
            f"{entry['to']['epsilon']:g} in total" if new_budget else _format_number(entry["epsilon"]),
            "" if new_budget else f"{entry['delta']:g}",
            f"{entry['released']:,}" if "released" in entry else "",
            entry["status"],
        )
    spent, budget, unit = report["spent"], report["budget"], escape_control_characters(report["unit"])
    remaining = max(0.0, budget["epsilon"] - spent["epsilon"])
    console = Console()
    console.print(table)
    bound = "" if spent["exact"] else "at most "
    console.print(
        f"Each {unit} has spent {bound}epsilon {_format_number(spent['epsilon'])} and delta {spent['delta']:g} "
        f"of epsilon {budget['epsilon']:g} and delta {budget['delta']:g}; epsilon {_format_number(remaining)} remains.",
        markup=False,
    )


def _format_number(value: float | str) -> str:
    return f"{float(value):.6g}" if math.isfinite(float(value)) else "infinite"
