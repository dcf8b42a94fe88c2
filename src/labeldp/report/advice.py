"""The advice on recipes as a table, with the recommended recipe first, and as JSON."""

import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from labeldp.recipes.advisor.forecast import Advice, RecipeForecast, Use
from labeldp.recipes.advisor.formulas import RELIABLE_VOTE

_COLUMNS = ("recipe", "correct", "agreed", "nats", "vote from", "time", "releases")
# The table leaves out the optional columns on terminals with fewer characters per line.
_FULL_WIDTH = 100
_OPTIONAL_COLUMNS = ("agreed", "nats")


def to_json(advice: Advice) -> dict[str, Any]:
    """Return all results of the advisor for JSON. Infinite and unknown values are null."""
    lines = [
        {**asdict(line), "uses": [use._asdict() for use in line.uses], "duration": line.duration}
        for line in advice.forecasts
    ]
    for line in lines:
        line["duration"] = None if line["reason"] else line["duration"]
    facts = {name: getattr(advice, name) for name in ("recommended", "reason", "nats", "max_clusters")}
    return _replace_infinite({"setting": asdict(advice.spec), **facts, "recipes": lines})


def print_advice(advice: Advice) -> None:
    """Print a table and an explanation. The full table needs 100 columns, the short one 80."""
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
        is_numeric = name in ("correct", "agreed", "nats", "vote from")
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
        console.print(f"Not available ({reason}): {', '.join(recipes)}.", style="dim")
    if unavailable:
        console.print()
    console.print(f"Recommended: [bold]{advice.recommended}[/bold]. {advice.reason}")
    nats_text = ", ".join(f"{name} {nats:.3g}" for name, nats in advice.nats.items())
    console.print()
    is_composed = setting.delta and len(advice.forecast("additive").uses) > 1
    composition_note = (
        " Releases of additive are composed, so their epsilons add up to more than the total." if is_composed else ""
    )
    width_note = (
        ""
        if len(shown) == len(_COLUMNS)
        else f" A terminal with {_FULL_WIDTH} columns also shows {' and '.join(_OPTIONAL_COLUMNS)}."
    )
    console.print(
        "correct: fraction of correct labels after the mechanism. agreed: the same among labels that agree with the "
        f"vote of their cluster. nats: information of a release about one label ({nats_text}; a clean label has "
        f"{math.log(setting.n_classes):.3g}). vote from: the epsilon from which a cluster vote is correct with "
        f"probability {RELIABLE_VOTE:.0%}, for {setting.n_clusters:,} clusters with a purity of {setting.purity:.0%} "
        "(number and purity are assumed unless they are given); for moments, additive and log-linear, the same for "
        f"sums of rows by class. Times are orders of magnitude.{composition_note}{width_note}",
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
    texts = (f"{n_releases}*{text}" if n_releases > 1 else text for text, n_releases in counts.items())
    return (", other rows " if uses[0].row_fraction < 1 else " + ").join(texts)


def _format_percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:.1%}"


def _format_number(value: float | None) -> str:
    if value is None:
        return ""
    return "never" if math.isinf(value) else f"{value:.2g}"


def _replace_infinite(value: Any) -> Any:
    """Replace infinite and undefined numbers, which JSON cannot represent, by None."""
    if isinstance(value, dict):
        return {name: _replace_infinite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
