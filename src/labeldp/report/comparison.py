"""The results of a comparison as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from labeldp.report.plots import Point


def print_comparison(curves: Mapping[str, Sequence[Point]], title: str) -> None:
    """Print the accuracy of each recipe at each epsilon; the best of each column is bold."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    epsilons = sorted({point.epsilon for points in curves.values() for point in points})
    best = {
        level: max(
            candidate.accuracy for points in curves.values() for candidate in points if candidate.epsilon == level
        )
        for level in epsilons
    }
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("recipe")
    for epsilon in epsilons:
        table.add_column(f"epsilon {epsilon:g}", justify="right")
    for name, points in curves.items():
        known = {point.epsilon: point for point in points}
        table.add_row(name, *(_format_cell(known.get(epsilon), best[epsilon]) for epsilon in epsilons))
    Console().print(table)


def _format_cell(point: Point | None, best: float) -> Any:
    if point is None:
        return "-"
    text = f"{point.accuracy:.1%} ± {(point.high - point.low) / 2:.1%}"
    return f"[bold]{text}[/bold]" if point.accuracy == best else text
