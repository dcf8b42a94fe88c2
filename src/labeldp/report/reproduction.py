"""A table of a paper with our results, for a terminal."""

from collections.abc import Sequence
from typing import Any


def print_reproduction(title: str, lines: list[dict[str, Any]]) -> None:
    """Print a line for each cell, with "not run" for a cell without results."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    has_audit = any("audited" in line for line in lines)
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    columns = ["method", "epsilon", "paper", "ours", "gap", "seeds", "min"]
    for name in columns + (["paper\naudited", "ours\naudited"] if has_audit else []):
        if name == "method":
            table.add_column(name, min_width=8)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        paper = "drawn only" if line["paper"] is None else f"{line['paper']:.1f}"
        cells = [line["method"], f"{line['epsilon']:g}", paper]
        if line["seeds"]:
            spread = "" if line["deviation"] is None else f" ± {line['deviation']:.1f}"
            gap = "" if line["difference"] is None else f"{line['difference']:+.1f}"
            cells += [f"{line['ours']:.1f}{spread}", gap, str(line["seeds"]), f"{line['minutes']:.1f}"]
        else:
            cells += ["not run", "", "", ""]
        if "audited" in line:
            cells += [_format_interval(line["paper audited"]), ", ".join(map(_format_interval, line["audited"]))]
        table.add_row(*cells)
    Console().print(table)


def _format_interval(ends: Sequence[float | None]) -> str:
    low, high = ends
    return f"{low:.1f}-{'any' if high is None else f'{high:.1f}'}"
