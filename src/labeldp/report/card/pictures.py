"""The pictures of a card, as SVG that a style sheet colours and that no file or script is needed for.

Positions across are shares of the width and sizes of letters are fixed, so that a narrow screen squeezes the picture
and not its words.
"""

import html
import math
from collections.abc import Sequence
from typing import Any

from labeldp.releases.responses import response_chances
from labeldp.report.card.blocks import Picture
from labeldp.report.card.numbers import BANDS, at_least, at_most, band, cut, percent
from labeldp.report.card.svg import line, rect, svg

_LEFT, _RIGHT, _NONE = 0.01, 20.0, 96.0  # epsilons at the ends of the line; where "none" begins, in percent
_TICKS = (0.01, 0.1, 1.0, 3.0, 8.0)
_SHOWN, _LONGEST = 6, 28  # classes with a bar of their own; letters of a name


def scale(epsilon: float, lower: float | None = None) -> Picture:
    """Draw the line from strong protection to none, with the stated epsilon and what an audit proves."""
    words = f"The stated epsilon, {at_most(epsilon)}, is "
    words += f"{band(epsilon)} protection." if math.isfinite(epsilon) else "at the far right: no protection."
    at, height = _place(epsilon), 100
    parts = [rect("band", 0, 46, _NONE, 12), rect("lost", _NONE, 46, 100 - _NONE, 12)]
    if lower is not None:
        proves = f"at least {at_least(lower)}" if lower > 0 else "nothing found"
        words += f" An audit: {proves}" + (
            "; the true value lies between." if lower <= epsilon else ", a contradiction."
        )
        (low, high), height = sorted((_place(lower), at)), 130
        between = "between" if lower <= epsilon else "refuted"
        parts += [rect(between, low, 46, high - low, 12), line("proven", _place(lower), 59, 100)]
        parts.append(_marker("proven", _place(lower), 100, "M0 -6 L6 0 L0 6 L-6 0 Z"))
        parts.append(_text("proven", _place(lower), 124, f"audited: {proves}"))
    parts += [_marker("stated", at, 45, "M0 0 L-7 -12 L7 -12 Z")]
    parts += [
        _text("stated", at, 26, "stated: infinite" if math.isinf(epsilon) else f"stated: at most {at_most(epsilon)}"),
        *_axis(),
    ]
    title = "Epsilon on a line from strong protection to none"
    return Picture(title, words, svg("scale", height, title, parts))


def noisy_label(epsilon: float, classes: Sequence[Any]) -> Picture:
    """Draw what becomes of a hundred equal labels, and the chance of each answer."""
    names = [str(name) for name in classes]
    kept, other = response_chances(epsilon, len(names))
    told, others = f"“{cut(names[0], _LONGEST)}”", "the other class" if len(names) == 2 else "other classes"
    words = (
        f"Of 100 rows whose label is {told}, about {round(100 * kept)} would be told as they are and "
        f"{100 - round(100 * kept)} as {others}. The chance to be told as it is: {percent(kept)}; as each other class: "
        f"{percent(other)}."
    )
    if math.isinf(epsilon):
        words = f"Every one of 100 rows whose label is {told} may be told as it is."
    shown = names if len(names) <= _SHOWN else names[: _SHOWN - 2]
    bars = [(name, kept if place == 0 else other, place == 0) for place, name in enumerate(shown)]
    if len(shown) < len(names):
        left = len(names) - len(shown)
        bars.append((f"each of the {left} other classes", other, False))
    title = f"What could become of the label {told}"
    svg = _dots(round(100 * kept)) + _bars(bars, title)
    return Picture(title, words, f'<div class="pair">{svg}</div>')


def _axis() -> list[str]:
    """Return ticks, their numbers, and the names of the parts of the line."""
    parts = []
    edges = [_LEFT, *(bound for bound, _ in BANDS[:-1])]
    for start, end, name in zip(edges, [*edges[1:], _RIGHT], [name for _, name in BANDS], strict=True):
        # Where there is no room for all names, the style sheet leaves out all but the ends.
        kind = "name end" if start == _LEFT else "name"
        parts.append(_text(kind, (_place(start) + _place(end)) / 2, 92, name))
    for tick in _TICKS:
        parts += [line("tick", _place(tick), 46, 62), _text("number", _place(tick), 75, f"{tick:g}")]
    return [*parts, _text("number", 98, 75, "∞"), _text("name end last", 100, 92, "none")]


def _dots(kept: int) -> str:
    """A hundred labels: full discs are told as they are, rings are not."""
    dots = []
    for place in range(100):
        x, y = 9 + 17 * (place % 10), 9 + 17 * (place // 10)
        size = 'class="kept" r="6"' if place < kept else 'class="moved" r="5"'
        dots.append(f'<circle cx="{x}" cy="{y}" {size}/>')
    return f'<svg class="dots" aria-hidden="true" width="171" height="171">{"".join(dots)}</svg>'


def _bars(bars: Sequence[tuple[str, float, bool]], title: str) -> str:
    parts = []
    for place, (name, chance, kept) in enumerate(bars):
        top, kind = 34 * place, "kept" if kept else "moved"
        said = f"{percent(chance)} {'as it is: ' if kept else 'as '}{cut(name, _LONGEST)}"
        parts.append(f'<text class="bar-name" x="0" y="{top + 12}">{html.escape(said)}</text>')
        parts.append(rect("track", 0, top + 18, 100, 9))
        if chance > 0:
            parts.append(rect(kind, 0, top + 18, max(100 * chance, 0.4), 9))
    return svg("bars", 34 * len(bars), title, parts)


def _place(epsilon: float) -> float:
    """Return where an epsilon lies on the line, in percent of its width."""
    if math.isinf(epsilon):
        return 98.0
    share = math.log(max(epsilon, _LEFT) / _LEFT) / math.log(_RIGHT / _LEFT)
    return 3.0 + (_NONE - 3.0) * min(share, 1.0)


def _marker(kind: str, x: float, tip: float, path: str) -> str:
    # A nested drawing is the way to move a shape by a share of the width.
    return f'<svg x="{x:.2f}%" y="{tip:g}" overflow="visible"><path class="{kind}" d="{path}"/></svg>'


def _text(kind: str, x: float, y: float, text: str) -> str:
    side = "end" if kind.endswith("last") else "middle"
    if kind in ("stated", "proven"):  # long words, which must not leave the picture
        side = "start" if x < 25 else "end" if x > 75 else "middle"
    return f'<text class="{kind}" text-anchor="{side}" x="{x:.2f}%" y="{y:g}">{html.escape(text)}</text>'
