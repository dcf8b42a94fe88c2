"""Advice as people read it: a table, the recommended recipe first, and why."""

import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from labeldp.recipes.advisor import Advice, RecipeForecast, Use
from labeldp.recipes.arithmetic import RELIABLE_VOTE

_COLUMNS = ("recipe", "right", "agreed", "nats", "vote from", "time", "releases")
_WIDE = 100  # columns of a terminal, below which the table leaves some of its own out
_LEFT_OUT = ("agreed", "nats")


def to_json(advice: Advice) -> dict[str, Any]:
    """Return everything that the advisor found, ready for JSON: what is infinite or unknown is null."""
    lines = [
        {**asdict(line), "uses": [use._asdict() for use in line.uses], "cost": line.duration}
        for line in advice.forecasts
    ]
    for line in lines:
        line["cost"] = None if line["reason"] else line["cost"]
    facts = {name: getattr(advice, name) for name in ("recommended", "reason", "nats", "max_clusters")}
    return _finite({"setting": asdict(advice.spec), **facts, "recipes": lines})


def print_advice(advice: Advice) -> None:
    """Print a table that fits 100 columns, or with fewer facts 80, and a paragraph."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    at, console = advice.spec, Console(highlight=False)
    shown = [name for name in _COLUMNS if console.width >= _WIDE or name not in _LEFT_OUT]
    size = f"{at.n_rows:,} rows, {at.n_classes} classes" + (f" ({at.positives:.3g} positive)" if at.positives else "")
    table = Table(
        box=SIMPLE_HEAD,
        title=f"{size}, {at.features}, epsilon {at.epsilon:g}, delta {at.delta:g}",
        title_justify="left",
        pad_edge=False,
    )
    for name in shown:
        right = name in ("right", "agreed", "nats", "vote from")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "releases", overflow="fold")
    can_run = [line for line in advice.forecasts if not line.reason]
    for line in sorted(can_run, key=lambda line: line.recipe != advice.recommended):
        cells = _cells(line)
        table.add_row(*(cells[name] for name in shown), style="bold" if line.recipe == advice.recommended else None)
    console.print(table)
    cannot: dict[str, list[str]] = {}
    for line in advice.forecasts:
        if line.reason:
            cannot.setdefault(line.reason, []).append(line.recipe)
    for reason, recipes in cannot.items():
        console.print(f"Not here ({reason}): {', '.join(recipes)}.", style="dim")
    if cannot:
        console.print()
    console.print(f"Take [bold]{advice.recommended}[/bold]. {advice.reason}")
    ranked = ", ".join(f"{name} {nats:.3g}" for name, nats in advice.nats.items())
    console.print()
    several = at.delta and len(advice.forecast("additive").uses) > 1
    composed = (
        " Releases of additive are composed, so that their epsilons add up to more than the whole." if several else ""
    )
    narrow = "" if len(shown) == len(_COLUMNS) else f" A window of {_WIDE} columns shows {' and '.join(_LEFT_OUT)} too."
    console.print(
        "right: share of right labels after the mechanism. agreed: the same among labels that a cluster vote confirms. "
        f"nats: what a release tells of one label ({ranked}; a clean label tells {math.log(at.n_classes):.3g}). vote "
        f"from: the epsilon from which a cluster vote is right with probability {RELIABLE_VOTE:.0%}, for {at.n_clusters:,} "
        f"clusters of which {at.purity:.0%} belong to one class (assumed: see --clusters, --purity); for moments, "
        f"additive and log-linear, the sums of rows by class. Times are orders of magnitude.{composed}{narrow}",
        style="dim",
    )


def _cells(line: RecipeForecast) -> dict[str, str]:
    cells = (
        line.recipe,
        _percent(line.label_accuracy),
        _percent(line.agreed_accuracy),
        "" if line.nats is None else f"{line.nats:.3f}",
        _number(line.min_epsilon),
        line.duration,
        f"{line.uses[0].mechanism}, {line.n_teachers:,} teachers" if line.n_teachers else _releases(line.uses),
    )
    return dict(zip(_COLUMNS, cells, strict=True))


def _releases(uses: tuple[Use, ...]) -> str:
    each = Counter(f"{use.mechanism}({use.epsilon:.3g}{f', {use.delta:.3g}' if use.delta else ''})" for use in uses)
    counted = (f"{count}*{words}" if count > 1 else words for words, count in each.items())
    return (", other rows " if uses[0].row_fraction < 1 else " + ").join(counted)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "never" if math.isinf(value) else f"{value:.2g}"


def _finite(value: Any) -> Any:
    """Replace infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
