"""What commands show while they work and when they are done."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import typer

from labeldp.core.printable import printable

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


class Steps:
    """What a training does, as dim lines on a terminal, with a bar below them for steps that were planned.

    The remaining time assumes that the steps to come take as long as those that are done, on average. Where the output
    goes elsewhere, nothing is shown.
    """

    def __init__(self, console: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to a console of rich; by default to standard error."""
        from rich.console import Console

        self._console = Console(stderr=True) if console is None else console
        self._clock = clock
        self._bar: Any = None

    def tell(self, what: str) -> None:
        """Say what is being done."""
        from rich.text import Text

        if self._console.is_terminal:
            self._console.print(Text(f"{printable(what)} ...", style="dim"))

    def show(self, done: int, planned: int) -> None:
        """Show how many steps of a plan are done; the bar goes when all are."""
        if not self._console.is_terminal:
            return
        if done >= planned:
            self.close()
            return
        if self._bar is None:
            self._begin()
        text = f"{done / planned:.0%} of {planned} step{'s' * (planned > 1)}"
        if done:
            left = (self._clock() - self._begun) / done * (planned - done)
            text += f", about {_duration(left)} left"
        self._bar.update(self._task, total=planned, completed=done, text=text)
        self._bar.refresh()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(), TextColumn("{task.fields[text]}", style="dim"))
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("", total=1, text="")
        self._begun = self._clock()
        self._bar.start()


def _duration(seconds: float) -> str:
    """Write a time that is known roughly."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def tell(what: str) -> None:
    """Say on a terminal what is being done; nothing where the output goes elsewhere."""
    Steps().tell(what)
