"""How far a training is: a recipe plans steps and counts them, and a screen shows it."""

from collections.abc import Callable
from dataclasses import dataclass, field

Show = Callable[[int, int], None]


def _nowhere(done: int, planned: int) -> None:
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

    show: Show = field(default=_nowhere, repr=False)
    planned: int = 0
    done: int = 0

    def plan(self, steps: int) -> None:
        """Plan so many further steps."""
        self.planned += steps
        self.show(self.done, self.planned)

    def step(self) -> None:
        """Count a step that is done; steps that nobody planned count for nothing."""
        if self.done < self.planned:
            self.done += 1
            self.show(self.done, self.planned)

    def restart(self) -> None:
        """Forget the steps of an earlier training."""
        self.planned = self.done = 0
