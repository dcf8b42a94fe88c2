"""What commands show while they work and when they are done."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import typer

from labeldp.core.printable import escape_control_characters

REUSE_NOTE = (
    "Note: Nothing was drawn: the same was asked for before, and what was released then was used again. Labels that "
    "changed since are not in it."
)


def note_reuse(vault: Any) -> None:
    """Say how many stored releases a command used again, if any."""
    reused, drawn = len(vault.reused), len(vault.drawn)
    if reused and not drawn:
        echo(REUSE_NOTE, err=True)
    elif reused:
        echo(
            f"Note: {reused} of {reused + drawn} releases were in the ledger already and were used again at no cost. "
            "Labels that changed since are not in them.",
            err=True,
        )


class ProgressBar:
    """A bar on the terminal; nothing where the output goes elsewhere."""

    def __init__(self, bar: Any, total: int | None) -> None:
        self._bar, self._total, self._task = bar, total, None

    def start(self, description: str) -> None:
        """Begin the next part of the work."""
        if self._task is not None:
            self._bar.update(self._task, total=1, completed=1)
        self._task = self._bar.add_task(description, total=self._total if description != "drawing noise" else None)

    def advance(self, n_rows: int) -> None:
        """Say that so many more rows are done."""
        self._bar.advance(self._task, n_rows)


@contextmanager
def progress_bar(total: int | None) -> Iterator[ProgressBar]:
    """Show progress over `total` rows (None: unknown) while a command works."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    row_count = TextColumn("{task.completed:,.0f} rows")
    columns = (TextColumn("{task.description:<15}"), BarColumn(), row_count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield ProgressBar(progress, total)


def echo(text: str, err: bool = False, end: bool = True) -> None:
    """Print a text, with a line's end or without, in which no name from a file can command the terminal."""
    typer.echo(escape_control_characters(text), err=err, nl=end)


def print_result(data: dict[str, Any], sentence: str, as_json: bool) -> None:
    """Print what was done, as a sentence or as JSON."""
    echo(json.dumps(data, indent=2) if as_json else sentence)


class StatusDisplay:
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

    def show_status(self, message: str) -> None:
        """Say what is being done."""
        from rich.text import Text

        if self._console.is_terminal:
            self._console.print(Text(f"{escape_control_characters(message)} ...", style="dim"))

    def show_progress(self, n_done: int, n_planned: int) -> None:
        """Show how many steps of a plan are done; the bar goes when all are."""
        if not self._console.is_terminal:
            return
        if n_done >= n_planned:
            self.close()
            return
        if self._bar is None:
            self._begin()
        text = f"{n_done / n_planned:.0%} of {n_planned} step{'s' * (n_planned > 1)}"
        if n_done:
            remaining = (self._clock() - self._begun) / n_done * (n_planned - n_done)
            text += f", about {_format_duration(remaining)} left"
        self._bar.update(self._task, total=n_planned, completed=n_done, text=text)
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


def _format_duration(seconds: float) -> str:
    """Write a time that is known roughly."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def show_status(message: str) -> None:
    """Say on a terminal what is being done; nothing where the output goes elsewhere."""
    StatusDisplay().show_status(message)
