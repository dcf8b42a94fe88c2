"""How far a training is: a recipe plans steps and counts them, and a screen shows it."""

from collections.abc import Callable
from dataclasses import dataclass, field

ProgressCallback = Callable[[int, int], None]


def _show_nothing(n_done: int, n_planned: int) -> None:
    """Show nothing."""


@dataclass
class Progress:
    """The steps of a training that are done, of those that its recipe has planned.

    Steps are counted by public facts alone. A recipe that plans nothing shows nothing.

    Attributes:
        show: Is called with the steps that are done and planned, after each change.
        planned: The number of planned steps.
        done: How many of them are done.
    """

    show: ProgressCallback = field(default=_show_nothing, repr=False)
    n_planned: int = 0
    n_done: int = 0

    def plan(self, n_steps: int) -> None:
        """Plan so many further steps."""
        self.n_planned += n_steps
        self.show(self.n_done, self.n_planned)

    def step(self) -> None:
        """Count a step that is done; steps that nobody planned count for nothing."""
        if self.n_done < self.n_planned:
            self.n_done += 1
            self.show(self.n_done, self.n_planned)

    def restart(self) -> None:
        """Forget the steps of an earlier training."""
        self.n_planned = self.n_done = 0
