"""What commands show while they work and when they are done."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from labeldp.printable import printable

AGAIN = (
    "Note: Nothing was drawn: the same was asked for before, and what was released then was used again. Labels that "
    "changed since are not in it."
)


def note_reuse(vault: Any) -> None:
    """Say how many stored releases a command used again, if any."""
    reused, drawn = len(vault.reused), len(vault.drawn)
    if reused and not drawn:
        echo(AGAIN, err=True)
    elif reused:
        echo(
            f"Note: {reused} of {reused + drawn} releases were in the ledger already and were used again at no cost. "
            "Labels that changed since are not in them.",
            err=True,
        )


class Bar:
    """A bar on the terminal; nothing where the output goes elsewhere."""

    def __init__(self, bar: Any, total: int | None) -> None:
        self._bar, self._total, self._task = bar, total, None

    def start(self, what: str) -> None:
        """Begin the next part of the work."""
        if self._task is not None:
            self._bar.update(self._task, total=1, completed=1)
        self._task = self._bar.add_task(what, total=self._total if what != "drawing noise" else None)

    def advance(self, rows: int) -> None:
        """Say that so many more rows are done."""
        self._bar.advance(self._task, rows)


@contextmanager
def progress_bar(total: int | None) -> Iterator[Bar]:
    """Show progress over `total` rows (None: unknown) while a command works."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    count = TextColumn("{task.completed:,.0f} rows")
    columns = (TextColumn("{task.description:<15}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield Bar(bar, total)


def echo(text: str, err: bool = False, end: bool = True) -> None:
    """Print a text, with a line's end or without, in which no name from a file can command the terminal."""
    typer.echo(printable(text), err=err, nl=end)


def say(data: dict[str, Any], sentence: str, as_json: bool) -> None:
    """Print what was done, as a sentence or as JSON."""
    echo(json.dumps(data, indent=2) if as_json else sentence)


def tell(what: str) -> None:
    """Say on a terminal what is being done; nothing where the output goes elsewhere."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    if console.is_terminal:
        console.print(Text(f"{printable(what)} ...", style="dim"))
