"""Output of commands: results, notes, status lines and progress bars."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import typer

from labeldp.core.printable import escape_control_characters

if TYPE_CHECKING:
    from labeldp.privacy.vault import Vault

REUSE_NOTE = (
    "Note: No noise was drawn: the ledger already has these releases, which were used again at no cost. Labels that "
    "changed since then are not in them."
)


def note_reuse(vault: "Vault") -> None:
    """Print how many stored releases a command used again, if any."""
    reused, drawn = len(vault.reused_entries), len(vault.drawn_entries)
    if reused and not drawn:
        echo(REUSE_NOTE, err=True)
    elif reused:
        echo(
            f"Note: {reused} of {reused + drawn} releases were in the ledger already and were used again at no cost. "
            "Labels that changed since then are not in them.",
            err=True,
        )


class ProgressBar:
    """A progress bar over rows; invisible if standard error is not a terminal."""

    def __init__(self, bar: Any, total: int | None) -> None:
        self._bar, self._total, self._task = bar, total, None

    def start(self, description: str) -> None:
        """Begin the next phase."""
        if self._task is not None:
            self._bar.update(self._task, total=1, completed=1)
        self._task = self._bar.add_task(description, total=self._total if description != "drawing noise" else None)

    def advance(self, n_rows: int) -> None:
        """Add a number of rows to the finished ones."""
        self._bar.advance(self._task, n_rows)


@contextmanager
def progress_bar(total: int | None) -> Iterator[ProgressBar]:
    """Show progress over `total` rows (None if unknown) while a command works."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    row_count = TextColumn("{task.completed:,.0f} rows")
    columns = (TextColumn("{task.description:<15}"), BarColumn(), row_count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield ProgressBar(progress, total)


def echo(text: str, err: bool = False, end: bool = True) -> None:
    """Print a text with its control characters escaped, so that names from files cannot control the terminal."""
    typer.echo(escape_control_characters(text), err=err, nl=end)


def print_result(data: dict[str, Any], sentence: str, as_json: bool) -> None:
    """Print a result as JSON or as a sentence."""
    echo(json.dumps(data, indent=2) if as_json else sentence)


class StatusDisplay:
    """Status lines of a training on a terminal, with a bar below them for planned steps.

    The remaining time assumes that the remaining steps take as long, on average, as the finished ones. Nothing is shown
    if the console is not a terminal.
    """

    def __init__(self, console: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to a rich console; by default, to standard error."""
        from rich.console import Console

        self._console = Console(stderr=True) if console is None else console
        self._clock = clock
        self._bar: Any = None

    def show_status(self, message: str) -> None:
        """Print a status line."""
        from rich.text import Text

        if self._console.is_terminal:
            self._console.print(Text(f"{escape_control_characters(message)} ...", style="dim"))

    def show_progress(self, n_done: int, n_planned: int) -> None:
        """Show how many planned steps are done; the bar disappears after the last."""
        if not self._console.is_terminal:
            return
        if n_done >= n_planned:
            self.close()
            return
        if self._bar is None:
            self._start_bar()
        text = f"{n_done / n_planned:.0%} of {n_planned} step{'s' * (n_planned > 1)}"
        if n_done:
            remaining = (self._clock() - self._start_time) / n_done * (n_planned - n_done)
            text += f", about {_format_duration(remaining)} left"
        self._bar.update(self._task, total=n_planned, completed=n_done, text=text)
        self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_bar(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(), TextColumn("{task.fields[text]}", style="dim"))
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("", total=1, text="")
        self._start_time = self._clock()
        self._bar.start()


def _format_duration(seconds: float) -> str:
    """Format an approximate duration."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def show_status(message: str) -> None:
    """Print a status line on a terminal; nothing if standard error is not one."""
    StatusDisplay().show_status(message)
