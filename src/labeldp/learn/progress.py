"""How far a training is: epochs, rows a second, loss, time left. Shown on a terminal, else silent."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self


class Progress:
    """A bar for one training, if switched on and standard error is a terminal; or a function told of each epoch."""

    def __init__(self, on: bool | str | Callable[[int, float], None], epochs: int, first: int, rows: int) -> None:
        self._on, self._epochs, self._first, self._rows = on, epochs, first, rows
        self._done = first
        self._bar: Any = None

    def __enter__(self) -> Self:
        self._last = time.perf_counter()
        if self._on is True or isinstance(self._on, str):
            name = self._on if isinstance(self._on, str) else "training"
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            console = Console(stderr=True)
            rate = TextColumn("{task.fields[so_far]}")
            columns = (name, BarColumn(), MofNCompleteColumn(), "epochs", rate, TimeRemainingColumn())
            self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
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
        self._last = now

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def counted(on: bool, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar for so many things to do, on a terminal; what is given is to be called after each of them."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (on and console.is_terminal)) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
