"""Shapes of pictures as SVG. Positions across are percent of the width, positions down are pixels."""

import html
from collections.abc import Sequence


def svg(kind: str, height: int, title: str, parts: Sequence[str]) -> str:
    """Wrap shapes of a picture of this height."""
    label = html.escape(title, quote=True)
    return f'<svg class="{kind}" role="img" aria-label="{label}" width="100%" height="{height}">{"".join(parts)}</svg>'


def rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    """Draw a filled rectangle."""
    return f'<rect class="{kind}" x="{x:.2f}%" y="{y:g}" width="{width:.2f}%" height="{height:g}"/>'


def line(kind: str, x: float, top: float, bottom: float) -> str:
    """Draw a vertical line."""
    return f'<line class="{kind}" x1="{x:.2f}%" x2="{x:.2f}%" y1="{top:g}" y2="{bottom:g}"/>'


def text(kind: str, x: float, y: float, words: str, side: str = "middle") -> str:
    """Write words at a place: they start there, end there, or have their middle there."""
    return f'<text class="{kind}" text-anchor="{side}" x="{x:.2f}%" y="{y:g}">{html.escape(words)}</text>'
