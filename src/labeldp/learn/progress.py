"""How far a training is: a bar on a terminal; elsewhere, in a log for example, a line a minute."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Self

_SECONDS = 60.0  # between two lines, where there is no terminal for a bar


class Lines:
    """A line now and then on standard error: how much is done, and how long the rest will take."""

    def __init__(self, what: str, unit: str, total: int, done: int = 0) -> None:
        self._what, self._unit, self._total, self._first = what, unit, total, done
        self._begun = self._told = time.perf_counter()

    def tell(self, done: int, more: str = "") -> None:
        """Say that so much is done, unless something was said just now, or all is done."""
        now = time.perf_counter()
        if now - self._told < _SECONDS or done >= self._total:
            return
        self._told = now
        left = (now - self._begun) / max(done - self._first, 1) * (self._total - done)
        print(f"{self._what}: {done} of {self._total} {self._unit}{more}, about {left:.0f} s left", file=sys.stderr)


class Progress:
    """A bar for one training, or lines, if switched on; or a function told of each epoch."""

    def __init__(self, on: bool | str | Callable[[int, float], None], epochs: int, first: int, rows: int) -> None:
        self._on, self._epochs, self._first, self._rows = on, epochs, first, rows
        self._done = first
        self._bar: Any = None
        self._lines: Lines | None = None

    def __enter__(self) -> Self:
        self._last = time.perf_counter()
        if self._on is True or isinstance(self._on, str):
            name = self._on if isinstance(self._on, str) else "training"
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            console = Console(stderr=True)
            if not console.is_terminal:
                self._lines = Lines(name, "epochs", self._epochs, self._first)
                return self
            rate = TextColumn("{task.fields[so_far]}")
            columns = (name, BarColumn(), MofNCompleteColumn(), "epochs", rate, TimeRemainingColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._epochs, completed=self._first, so_far="")
        return self

    def epoch(self, loss: float) -> None:
        """Tell that an epoch is done."""
        self._done += 1
        if callable(self._on):
            self._on(self._done, loss)
        now = time.perf_counter()
        if self._bar is not None:
            so_far = f"{self._rows / (now - self._last):,.0f} rows/s  loss {loss:.3f}"
            self._bar.update(self._task, advance=1, so_far=so_far)
        if self._lines is not None:
            self._lines.tell(self._done, f", loss {loss:.3f}")
        self._last = now

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def counted(on: bool, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar, or lines, for so many things to do; what is given is to be called after each of them."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console, lines, done = Console(stderr=True), Lines(what, "done", total), count(1)
    if not (on and console.is_terminal):
        yield lambda: lines.tell(next(done)) if on else None
        return
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
