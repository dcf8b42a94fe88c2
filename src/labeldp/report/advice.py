"""Advice as people read it: a table, the recommended recipe first, and why."""

import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from labeldp.recipes.advisor.forecast import Advice, RecipeForecast, Use
from labeldp.recipes.advisor.formulas import RELIABLE_VOTE

_COLUMNS = ("recipe", "right", "agreed", "nats", "vote from", "time", "releases")
_FULL_WIDTH = 100  # columns of a terminal, below which the table leaves some of its own out
_OPTIONAL_COLUMNS = ("agreed", "nats")


def to_json(advice: Advice) -> dict[str, Any]:
    """Return everything that the advisor found, ready for JSON: what is infinite or unknown is null."""
    lines = [
        {**asdict(line), "uses": [use._asdict() for use in line.uses], "cost": line.duration}
        for line in advice.forecasts
    ]
    for line in lines:
        line["cost"] = None if line["reason"] else line["cost"]
    facts = {name: getattr(advice, name) for name in ("recommended", "reason", "nats", "max_clusters")}
    return _replace_infinite({"setting": asdict(advice.spec), **facts, "recipes": lines})


def print_advice(advice: Advice) -> None:
    """Print a table that fits 100 columns, or with fewer facts 80, and a paragraph."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    setting, console = advice.spec, Console(highlight=False)
    shown = [name for name in _COLUMNS if console.width >= _FULL_WIDTH or name not in _OPTIONAL_COLUMNS]
    size = f"{setting.n_rows:,} rows, {setting.n_classes} classes" + (
        f" ({setting.positives:.3g} positive)" if setting.positives else ""
    )
    table = Table(
        box=SIMPLE_HEAD,
        title=f"{size}, {setting.features}, epsilon {setting.epsilon:g}, delta {setting.delta:g}",
        title_justify="left",
        pad_edge=False,
    )
    for name in shown:
        is_numeric = name in ("right", "agreed", "nats", "vote from")
        table.add_column(name, justify="right" if is_numeric else "left", no_wrap=name != "releases", overflow="fold")
    available = [line for line in advice.forecasts if not line.reason]
    for line in sorted(available, key=lambda line: line.recipe != advice.recommended):
        cells = _format_cells(line)
        table.add_row(*(cells[name] for name in shown), style="bold" if line.recipe == advice.recommended else None)
    console.print(table)
    unavailable: dict[str, list[str]] = {}
    for line in advice.forecasts:
        if line.reason:
            unavailable.setdefault(line.reason, []).append(line.recipe)
    for reason, recipes in unavailable.items():
        console.print(f"Not here ({reason}): {', '.join(recipes)}.", style="dim")
    if unavailable:
        console.print()
    console.print(f"Take [bold]{advice.recommended}[/bold]. {advice.reason}")
    nats_text = ", ".join(f"{name} {nats:.3g}" for name, nats in advice.nats.items())
    console.print()
    is_composed = setting.delta and len(advice.forecast("additive").uses) > 1
    composition_note = (
        " Releases of additive are composed, so that their epsilons add up to more than the whole."
        if is_composed
        else ""
    )
    width_note = (
        ""
        if len(shown) == len(_COLUMNS)
        else f" A window of {_FULL_WIDTH} columns shows {' and '.join(_OPTIONAL_COLUMNS)} too."
    )
    console.print(
        "right: share of right labels after the mechanism. agreed: the same among labels that a cluster vote confirms. "
        f"nats: what a release tells of one label ({nats_text}; a clean label tells {math.log(setting.n_classes):.3g}). vote "
        f"from: the epsilon from which a cluster vote is right with probability {RELIABLE_VOTE:.0%}, for {setting.n_clusters:,} "
        f"clusters of which {setting.purity:.0%} belong to one class (assumed: see --clusters, --purity); for moments, "
        f"additive and log-linear, the sums of rows by class. Times are orders of magnitude.{composition_note}{width_note}",
        style="dim",
    )


def _format_cells(line: RecipeForecast) -> dict[str, str]:
    cells = (
        line.recipe,
        _format_percent(line.label_accuracy),
        _format_percent(line.agreed_accuracy),
        "" if line.nats is None else f"{line.nats:.3f}",
        _format_number(line.min_epsilon),
        line.duration,
        f"{line.uses[0].mechanism}, {line.n_teachers:,} teachers" if line.n_teachers else _format_releases(line.uses),
    )
    return dict(zip(_COLUMNS, cells, strict=True))


def _format_releases(uses: tuple[Use, ...]) -> str:
    counts = Counter(f"{use.mechanism}({use.epsilon:.3g}{f', {use.delta:.3g}' if use.delta else ''})" for use in uses)
    texts = (f"{count}*{text}" if count > 1 else text for text, count in counts.items())
    return (", other rows " if uses[0].row_fraction < 1 else " + ").join(texts)


def _format_percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:.1%}"


def _format_number(value: float | None) -> str:
    if value is None:
        return ""
    return "never" if math.isinf(value) else f"{value:.2g}"


def _replace_infinite(value: Any) -> Any:
    """Replace infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _replace_infinite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
