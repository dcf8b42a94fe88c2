"""Shapes of SVG figures. Horizontal positions are percentages of the width, vertical ones are pixels."""

import html
from collections.abc import Sequence


def svg_image(kind: str, height: int, title: str, shapes: Sequence[str]) -> str:
    """Return an SVG element of a height with some shapes."""
    label = html.escape(title, quote=True)
    return f'<svg class="{kind}" role="img" aria-label="{label}" width="100%" height="{height}">{"".join(shapes)}</svg>'


def svg_rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    """Draw a filled rectangle."""
    return f'<rect class="{kind}" x="{x:.2f}%" y="{y:g}" width="{width:.2f}%" height="{height:g}"/>'


def svg_line(kind: str, x: float, top: float, bottom: float) -> str:
    """Draw a vertical line."""
    return f'<line class="{kind}" x1="{x:.2f}%" x2="{x:.2f}%" y1="{top:g}" y2="{bottom:g}"/>'


def svg_text(kind: str, x: float, y: float, content: str, anchor: str = "middle") -> str:
    """Write a text that starts at, ends at or is centered on a position."""
    return f'<text class="{kind}" text-anchor="{anchor}" x="{x:.2f}%" y="{y:g}">{html.escape(content)}</text>'
