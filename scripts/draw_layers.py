"""Draw docs/images/layers.svg from the layers that `make lint` checks.

    python scripts/draw_layers.py

The layers stand in pyproject.toml under tool.importlinter, and the tests compare the picture with them.
"""

import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/images/layers.svg"
_WIDTH, _HEIGHT, _GAP, _MARGIN = 560, 34, 8, 16
_STYLE = """
  text { font: 14px system-ui, sans-serif; text-anchor: middle; fill: #1f2933; }
  rect { fill: #eef2f6; stroke: #9aa5b1; rx: 6; }
  .private { fill: #fdeaea; stroke: #c05656; }
  .inner { fill: #ffffff; stroke: #c05656; }
  .note { font-size: 12px; fill: #52606d; }
"""


def layers(container: str) -> list[list[str]]:
    """Return the layers within a package, top first, each as the names that share it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(each for each in settings["contracts"] if each.get("containers") == [container])
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def draw() -> str:
    """Return the picture as SVG: one row of boxes for each layer, and the private side with its own layers."""
    parts, top = [], _MARGIN
    for names in layers("labeldp"):
        width = (_WIDTH - _GAP * (len(names) - 1)) / len(names)
        for index, name in enumerate(names):
            left = _MARGIN + index * (width + _GAP)
            inner = layers("labeldp.privacy") if name == "privacy" else []
            height = _HEIGHT + (_HEIGHT + _GAP if inner else 0)
            parts.append(_box(left, top, width, height, name, "private" if inner else ""))
            for place, (part,) in enumerate(inner):
                part_width = (width - _GAP * (len(inner) + 1)) / len(inner)
                x = left + _GAP + place * (part_width + _GAP)
                parts.append(_box(x, top + _HEIGHT, part_width, _HEIGHT, part, "inner"))
        top += height + _GAP
    note = "A package imports only packages below it. Within privacy, a part imports only parts to its right."
    parts.append(f'<text class="note" x="{_MARGIN + _WIDTH / 2:g}" y="{top + 14}">{escape(note)}</text>')
    size = f'width="{_WIDTH + 2 * _MARGIN}" height="{top + 28}"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{_STYLE}</style>\n{body}\n</svg>\n'


def _box(left: float, top: float, width: float, height: float, name: str, style: str) -> str:
    box = f'<rect class="{style}" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"/>'
    return f'{box}\n<text x="{left + width / 2:g}" y="{top + 22:g}">{escape(name)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw())
    print(f"Wrote {PICTURE.relative_to(ROOT)}.")
