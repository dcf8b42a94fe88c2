"""The Markdown format of a card."""

import re

from labeldp.report.card.blocks import Block, Figure, Gallery, Sections, TableBlock, Tiles


def to_markdown(title: str, alert: str, sections: Sections) -> str:
    """Return the card as Markdown that is also readable as plain text."""
    lines = [f"# {title}"]
    if alert:
        lines += ["", f"> **{_escape(alert)}**"]
    for name, blocks in sections.items():
        lines += ["", f"## {_escape(name)}"]
        previous = None
        for block in blocks:
            if not (isinstance(block, str) and isinstance(previous, str)):
                lines.append("")
            lines += _block(block)
            previous = block
    return "\n".join(lines) + "\n"


def _block(block: Block) -> list[str]:
    if isinstance(block, str):
        return [f"- {_escape(block)}"]
    if isinstance(block, Tiles):
        return [f"- {_escape(name)}: **{_escape(value)}** ({_escape(note)})" for name, value, note in block.items]
    if isinstance(block, Gallery):
        return [f"- **{_escape(each.caption)}.** {_escape(each.alt)}" for each in block.figures]
    if isinstance(block, Figure):
        return [f"*{_escape(block.caption)}.* {_escape(block.alt)}"]
    return [f"*{_escape(block.caption)}*", "", *_table(block)]


def _table(table: TableBlock) -> list[str]:
    rows = [table.header, ("---",) * len(table.header), *table.rows]
    return ["| " + " | ".join(_escape(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]


def _escape(text: str) -> str:
    """Escape markup in names of classes and files; code between backticks is unchanged."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part if part.startswith("`") else re.sub(r"([*\[\]\\]|<(?=[A-Za-z/!?]))", r"\\\1", part) for part in parts
    )
