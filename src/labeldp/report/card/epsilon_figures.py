"""Figures of epsilon and of a noisy label as SVG, with colors from the style sheet of the card.

Horizontal positions are percentages of the width, and font sizes are fixed. A narrow screen therefore narrows the
figure but not its text.
"""

import html
import math
from collections.abc import Sequence
from typing import Any

from labeldp.releases.responses import response_probabilities
from labeldp.report.card.blocks import Figure
from labeldp.report.card.formatting import BANDS, band, format_lower, format_upper, percent, truncate
from labeldp.report.card.svg import svg_image, svg_line, svg_rect

# The epsilons at the ends of the scale.
_LEFT, _RIGHT = 0.01, 20.0
# The position from which the scale shows "no protection", in percent of the width.
_NONE_FROM = 96.0
_TICKS = (0.01, 0.1, 1.0, 3.0, 8.0)
# The maximum number of bars.
_MAX_BARS = 6
# The maximum number of characters of a class name.
_MAX_LETTERS = 28


def draw_epsilon_scale(epsilon: float, lower: float | None = None) -> Figure:
    """Draw the scale from strong protection to none, with the stated epsilon and the lower bound of an audit."""
    text = f"The stated epsilon, {format_upper(epsilon)}, is "
    text += f"{band(epsilon)} protection." if math.isfinite(epsilon) else "at the far right: no protection."
    x, height = _x_percent(epsilon), 100
    parts = [svg_rect("band", 0, 46, _NONE_FROM, 12), svg_rect("lost", _NONE_FROM, 46, 100 - _NONE_FROM, 12)]
    if lower is not None:
        proves = f"at least {format_lower(lower)}" if lower > 0 else "nothing found"
        text += f" An audit: {proves}" + (
            "; the true value lies between." if lower <= epsilon else ", a contradiction."
        )
        (low, high), height = sorted((_x_percent(lower), x)), 130
        between = "between" if lower <= epsilon else "refuted"
        parts += [svg_rect(between, low, 46, high - low, 12), svg_line("proven", _x_percent(lower), 59, 100)]
        parts.append(_draw_marker("proven", _x_percent(lower), 100, "M0 -6 L6 0 L0 6 L-6 0 Z"))
        parts.append(_draw_text("proven", _x_percent(lower), 124, f"audited: {proves}"))
    parts += [_draw_marker("stated", x, 45, "M0 0 L-7 -12 L7 -12 Z")]
    parts += [
        _draw_text(
            "stated", x, 26, "stated: infinite" if math.isinf(epsilon) else f"stated: at most {format_upper(epsilon)}"
        ),
        *_draw_axis(),
    ]
    title = "Epsilon on a scale from strong protection to none"
    return Figure(title, text, svg_image("scale", height, title, parts))


def draw_noisy_label(epsilon: float, classes: Sequence[Any]) -> Figure:
    """Draw the randomized responses of a hundred equal labels, and the probability of each response."""
    names = [str(name) for name in classes]
    p_true, p_other = response_probabilities(epsilon, len(names))
    label_text = f"“{truncate(names[0], _MAX_LETTERS)}”"
    other_text = "the other class" if len(names) == 2 else "other classes"
    text = (
        f"Of 100 rows whose label is {label_text}, randomized response would release about "
        f"{round(100 * p_true)} unchanged and {100 - round(100 * p_true)} as {other_text}. Probability of the "
        f"unchanged label: {percent(p_true)}; of each other class: {percent(p_other)}."
    )
    if math.isinf(epsilon):
        text = f"All of 100 rows whose label is {label_text} may be released unchanged."
    shown = names if len(names) <= _MAX_BARS else names[: _MAX_BARS - 2]
    bars = [(name, p_true if index == 0 else p_other, index == 0) for index, name in enumerate(shown)]
    if len(shown) < len(names):
        n_left = len(names) - len(shown)
        bars.append((f"each of the {n_left} other classes", p_other, False))
    title = f"Possible responses for the label {label_text}"
    drawing = _draw_dots(round(100 * p_true)) + _draw_bars(bars, title)
    return Figure(title, text, f'<div class="pair">{drawing}</div>')


def _draw_axis() -> list[str]:
    """Return the ticks, their numbers, and the names of the bands of the scale."""
    parts = []
    edges = [_LEFT, *(bound for bound, _ in BANDS[:-1])]
    for start, end, name in zip(edges, [*edges[1:], _RIGHT], [name for _, name in BANDS], strict=True):
        # On narrow screens, the style sheet hides all names but those at the ends.
        kind = "name end" if start == _LEFT else "name"
        parts.append(_draw_text(kind, (_x_percent(start) + _x_percent(end)) / 2, 92, name))
    for tick in _TICKS:
        parts += [svg_line("tick", _x_percent(tick), 46, 62), _draw_text("number", _x_percent(tick), 75, f"{tick:g}")]
    return [*parts, _draw_text("number", 98, 75, "∞"), _draw_text("name end last", 100, 92, "none")]


def _draw_dots(n_true: int) -> str:
    """Draw a hundred labels: filled circles are unchanged, open circles are not."""
    dots = []
    for index in range(100):
        x, y = 9 + 17 * (index % 10), 9 + 17 * (index // 10)
        size = 'class="unchanged" r="6"' if index < n_true else 'class="moved" r="5"'
        dots.append(f'<circle cx="{x}" cy="{y}" {size}/>')
    return f'<svg class="dots" aria-hidden="true" width="171" height="171">{"".join(dots)}</svg>'


def _draw_bars(bars: Sequence[tuple[str, float, bool]], title: str) -> str:
    parts = []
    for index, (name, probability, is_true) in enumerate(bars):
        top, kind = 34 * index, "unchanged" if is_true else "moved"
        caption = f"{percent(probability)} {'unchanged: ' if is_true else 'as '}{truncate(name, _MAX_LETTERS)}"
        parts.append(f'<text class="bar-name" x="0" y="{top + 12}">{html.escape(caption)}</text>')
        parts.append(svg_rect("track", 0, top + 18, 100, 9))
        if probability > 0:
            parts.append(svg_rect(kind, 0, top + 18, max(100 * probability, 0.4), 9))
    return svg_image("bars", 34 * len(bars), title, parts)


def _x_percent(epsilon: float) -> float:
    """Return the position of an epsilon on the scale, in percent of the width."""
    if math.isinf(epsilon):
        return 98.0
    fraction = math.log(max(epsilon, _LEFT) / _LEFT) / math.log(_RIGHT / _LEFT)
    return 3.0 + (_NONE_FROM - 3.0) * min(fraction, 1.0)


def _draw_marker(kind: str, x: float, tip: float, path: str) -> str:
    # A nested SVG element is positioned in percent of the width, which a path cannot be.
    return f'<svg x="{x:.2f}%" y="{tip:g}" overflow="visible"><path class="{kind}" d="{path}"/></svg>'


def _draw_text(kind: str, x: float, y: float, text: str) -> str:
    anchor = "end" if kind.endswith("last") else "middle"
    if kind in ("stated", "proven"):  # long texts, which must stay inside the figure
        anchor = "start" if x < 25 else "end" if x > 75 else "middle"
    return f'<text class="{kind}" text-anchor="{anchor}" x="{x:.2f}%" y="{y:g}">{html.escape(text)}</text>'
