"""The blocks of a card. A section is a list of blocks, in which a plain text is one sentence."""

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class TableBlock:
    """A table with a caption; `header` contains the names of its columns."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the table as data."""
        return {"table": self.caption, "rows": [dict(zip(self.header, row, strict=True)) for row in self.rows]}


@dataclass(frozen=True)
class Tiles:
    """The most important figures, each with a name, a value and a note."""

    items: tuple[tuple[str, str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as data."""
        return {"figures": [dict(zip(("name", "value", "note"), item, strict=True)) for item in self.items]}


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG; `alt` describes it in words."""

    caption: str
    alt: str
    svg: str

    def to_json(self) -> dict[str, Any]:
        """Return the description of the drawing."""
        return {"picture": self.caption, "shows": self.alt}


@dataclass(frozen=True)
class Gallery:
    """Small figures side by side."""

    figures: tuple[Figure, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the descriptions of the figures."""
        return {"pictures": [figure.to_json() for figure in self.figures]}


Block: TypeAlias = str | TableBlock | Tiles | Figure | Gallery
Sections: TypeAlias = dict[str, list[Block]]
