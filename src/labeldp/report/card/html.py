"""The HTML format of a card: one page without scripts, image files or network requests."""

import html
import re
from importlib.resources import files

from labeldp.report.card.blocks import Block, Figure, Gallery, Sections, TableBlock, Tiles

# The maximum number of characters of a column whose cells are not wrapped.
_MAX_SHORT = 18

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class="subtitle">{subtitle}</p>
{body}
</main>
</body>
</html>
"""


_BREAK = r"\1<wbr>"


def to_html(title: str, subtitle: str, alert: str, sections: Sections) -> str:
    """Return the card as an HTML page."""
    parts = [f'<p class="alert" role="alert">{_escape(alert)}</p>'] if alert else []
    for index, (name, blocks) in enumerate(sections.items()):
        css_class = "" if name != "Warnings" or blocks == ["None."] else ' class="warnings"'
        parts.append(f'<section{css_class} aria-labelledby="s{index}">\n<h2 id="s{index}">{_escape(name)}</h2>')
        parts += [*_blocks(blocks), "</section>"]
    style = files("labeldp.report.card").joinpath("card.css").read_text(encoding="utf-8")
    return _PAGE.format(title=_escape(title), subtitle=_escape(subtitle), style=style, body="\n".join(parts))


def _blocks(blocks: list[Block]) -> list[str]:
    """Render blocks; consecutive sentences become one list."""
    parts, sentences = list[str](), list[str]()

    def close() -> None:
        if sentences:
            parts.append("<ul>" + "".join(f"<li>{_escape(each)}</li>" for each in sentences) + "</ul>")
            sentences.clear()

    for block in blocks:
        if isinstance(block, str):
            sentences.append(block)
            continue
        close()
        parts.append(_block(block))
    close()
    return parts


def _block(block: TableBlock | Tiles | Figure | Gallery) -> str:
    if isinstance(block, TableBlock):
        return _table(block)
    if isinstance(block, Gallery):
        figures = "".join(
            f"<figure><figcaption><strong>{_escape(each.caption)}</strong></figcaption>{each.svg}"
            f"<figcaption>{_escape(each.alt)}</figcaption></figure>"
            for each in block.figures
        )
        return f'<div class="gallery">{figures}</div>'
    if isinstance(block, Tiles):
        items = "".join(
            f'<div><dt>{_escape(name)}</dt><dd><strong id="{_id(name)}">{_escape(value)}</strong>'
            f"<span>{_escape(note)}</span></dd></div>"
            for name, value, note in block.items
        )
        return f'<dl class="tiles">{items}</dl>'
    return f"<figure>{block.svg}<figcaption>{_escape(block.caption)}. {_escape(block.alt)}</figcaption></figure>"


def _table(table: TableBlock) -> str:
    """Render a table with explicit roles, because browsers drop them when a narrow screen stacks the cells."""
    columns = list(zip(table.header, *table.rows, strict=True))
    css_classes = [' class="short"' if max(map(len, column)) <= _MAX_SHORT else "" for column in columns]
    head = "".join(
        f'<th role="columnheader" scope="col"{css_class}>{_escape(name)}</th>'
        for name, css_class in zip(table.header, css_classes, strict=True)
    )
    rows = []
    for first, *rest in table.rows:
        cells = f'<th role="rowheader" scope="row"{css_classes[0]}>{_escape(first)}</th>'
        for name, cell, css_class in zip(table.header[1:], rest, css_classes[1:], strict=True):
            cells += f'<td role="cell" data-name="{html.escape(name, quote=True)}"{css_class}>{_escape(cell)}</td>'
        rows.append(f'<tr role="row">{cells}</tr>')
    css_class = "wide" if len(table.header) > 3 else "pairs" if len(table.header) == 2 else "plain"
    return (
        f'<table role="table" class="{css_class}"><caption>{_escape(table.caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table>'
    )


def _escape(text: str) -> str:
    """Escape a text. Text between backticks becomes code, which may wrap after dots and underscores."""
    return re.sub(r"`([^`]+)`", lambda m: f"<code>{re.sub('([._])', _BREAK, m[1])}</code>", html.escape(text))


def _id(name: str) -> str:
    return re.sub(r"[^a-z]+", "-", name.lower()).strip("-")
