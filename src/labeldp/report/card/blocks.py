"""What a card is made of. A section is a list of blocks; a plain text is a sentence."""

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class TableBlock:
    """A table with a caption; `head` names its columns."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the table as data."""
        return {"table": self.caption, "rows": [dict(zip(self.header, row, strict=True)) for row in self.rows]}


@dataclass(frozen=True)
class Tiles:
    """The figures that a reader wants first: name, value and a note for each."""

    items: tuple[tuple[str, str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as data."""
        return {"figures": [dict(zip(("name", "value", "note"), item, strict=True)) for item in self.items]}


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG; `alt` says in words all that it shows."""

    caption: str
    alt: str
    svg: str

    def to_json(self) -> dict[str, Any]:
        """Return the picture in words."""
        return {"picture": self.caption, "shows": self.alt}


@dataclass(frozen=True)
class Gallery:
    """Small pictures side by side."""

    figures: tuple[Figure, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the pictures in words."""
        return {"pictures": [figure.to_json() for figure in self.figures]}


Block: TypeAlias = str | TableBlock | Tiles | Figure | Gallery
Sections: TypeAlias = dict[str, list[Block]]
