"""The progress of a training: a bar on a terminal, and else, in a log for example, a line a minute."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Self

_REPORT_INTERVAL = 60.0  # seconds between two lines


class LogLines:
    """Lines on standard error at intervals: the number of finished items, and the estimated remaining time."""

    def __init__(self, name: str, unit: str, total: int, initial: int = 0) -> None:
        self._name, self._unit, self._total, self._initial = name, unit, total, initial
        self._start_time = self._last_report = time.perf_counter()

    def report(self, done: int, suffix: str = "") -> None:
        """Print a line, unless the interval is not over or all is done."""
        now = time.perf_counter()
        if now - self._last_report < _REPORT_INTERVAL or done >= self._total:
            return
        self._last_report = now
        seconds_left = (now - self._start_time) / max(done - self._initial, 1) * (self._total - done)
        print(
            f"{self._name}: {done} of {self._total} {self._unit}{suffix}, about {seconds_left:.0f} s left",
            file=sys.stderr,
        )


class TrainingProgress:
    """The progress of one training: a bar or lines if enabled, or a callback for each epoch."""

    def __init__(
        self, display: bool | str | Callable[[int, float], None], epochs: int, first_epoch: int, n_rows: int
    ) -> None:
        self._display, self._epochs, self._first_epoch, self._n_rows = display, epochs, first_epoch, n_rows
        self._n_done = first_epoch
        self._bar: Any = None
        self._lines: LogLines | None = None

    def __enter__(self) -> Self:
        self._last_time = time.perf_counter()
        if self._display is True or isinstance(self._display, str):
            name = self._display if isinstance(self._display, str) else "training"
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            console = Console(stderr=True)
            if not console.is_terminal:
                self._lines = LogLines(name, "epochs", self._epochs, self._first_epoch)
                return self
            rate = TextColumn("{task.fields[so_far]}")
            columns = (name, BarColumn(), MofNCompleteColumn(), "epochs", rate, TimeRemainingColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._epochs, completed=self._first_epoch, so_far="")
        return self

    def end_epoch(self, loss: float) -> None:
        """Report the end of an epoch and its mean loss."""
        self._n_done += 1
        if callable(self._display):
            self._display(self._n_done, loss)
        now = time.perf_counter()
        if self._bar is not None:
            so_far = f"{self._n_rows / (now - self._last_time):,.0f} rows/s  loss {loss:.3f}"
            self._bar.update(self._task, advance=1, so_far=so_far)
        if self._lines is not None:
            self._lines.report(self._n_done, f", loss {loss:.3f}")
        self._last_time = now

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def progress_bar(enabled: bool, name: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar, or lines, for `total` items; the yielded function is to be called after each of them."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console, lines, done = Console(stderr=True), LogLines(name, "done", total), count(1)
    if not (enabled and console.is_terminal):
        yield lambda: lines.report(next(done)) if enabled else None
        return
    columns = (name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
