"""A card as Markdown."""

import re

from labeldp.report.card.blocks import Block, Gallery, Picture, Sections, Table, Tiles


def to_markdown(title: str, alert: str, sections: Sections) -> str:
    """Return the card as Markdown that reads well as plain text, too."""
    lines = [f"# {title}"]
    if alert:
        lines += ["", f"> **{_plain(alert)}**"]
    for name, blocks in sections.items():
        lines += ["", f"## {_plain(name)}"]
        after = None
        for block in blocks:
            if not (isinstance(block, str) and isinstance(after, str)):
                lines.append("")
            lines += _block(block)
            after = block
    return "\n".join(lines) + "\n"


def _block(block: Block) -> list[str]:
    if isinstance(block, str):
        return [f"- {_plain(block)}"]
    if isinstance(block, Tiles):
        return [f"- {_plain(name)}: **{_plain(value)}** ({_plain(note)})" for name, value, note in block.items]
    if isinstance(block, Gallery):
        return [f"- **{_plain(each.caption)}.** {_plain(each.alt)}" for each in block.pictures]
    if isinstance(block, Picture):
        return [f"*{_plain(block.caption)}.* {_plain(block.alt)}"]
    return [f"*{_plain(block.caption)}*", "", *_table(block)]


def _table(table: Table) -> list[str]:
    rows = [table.head, ("---",) * len(table.head), *table.rows]
    return ["| " + " | ".join(_plain(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]


def _plain(text: str) -> str:
    """Keep names of classes and files from being read as markup; code between backticks is meant."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(p if p.startswith("`") else re.sub(r"([*\[\]\\]|<(?=[A-Za-z/!?]))", r"\\\1", p) for p in parts)
