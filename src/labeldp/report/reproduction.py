"""A paper's table beside ours, on a terminal."""

from typing import Any


def print_reproduction(title: str, lines: list[dict[str, Any]]) -> None:
    """Print a line for each cell; one that was not run says so."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    for name in ("method", "epsilon", "paper", "ours", "difference", "seeds", "minutes"):
        shown.add_column(name, justify="left" if name == "method" else "right")
    for line in lines:
        paper = "drawn only" if line["paper"] is None else f"{line['paper']:.1f}"
        if not line["seeds"]:
            shown.add_row(line["method"], f"{line['epsilon']:g}", paper, "not run", "", "", "")
            continue
        spread = "" if line["deviation"] is None else f" ± {line['deviation']:.1f}"
        gap = "" if line["difference"] is None else f"{line['difference']:+.1f}"
        ours = f"{line['ours']:.1f}{spread}"
        minutes = f"{line['minutes']:.1f}"
        shown.add_row(line["method"], f"{line['epsilon']:g}", paper, ours, gap, str(line["seeds"]), minutes)
    Console().print(shown)
