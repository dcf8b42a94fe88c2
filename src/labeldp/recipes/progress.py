"""The progress of a training: the planned and completed steps of a recipe."""

from collections.abc import Callable
from dataclasses import dataclass, field

ProgressCallback = Callable[[int, int], None]


def _show_nothing(n_done: int, n_planned: int) -> None:
    """Show nothing."""


@dataclass
class Progress:
    """The completed steps of a training, out of those that its recipe planned.

    The numbers depend on public facts alone. A recipe that plans no steps shows no progress.

    Attributes:
        show: Is called with `n_done` and `n_planned` after each change.
        n_planned: The number of planned steps.
        n_done: The number of completed steps.
    """

    show: ProgressCallback = field(default=_show_nothing, repr=False)
    n_planned: int = 0
    n_done: int = 0

    def add_steps(self, n_steps: int) -> None:
        """Add steps to the plan."""
        self.n_planned += n_steps
        self.show(self.n_done, self.n_planned)

    def step(self) -> None:
        """Count a completed step, up to the number of planned steps."""
        if self.n_done < self.n_planned:
            self.n_done += 1
            self.show(self.n_done, self.n_planned)

    def restart(self) -> None:
        """Reset both numbers for another training."""
        self.n_planned = self.n_done = 0
