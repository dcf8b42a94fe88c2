"""The privacy filter: whether one more release fits into a budget under adaptive composition.

The quantity that adds up is fixed when the ledger is created, because later releases depend on earlier ones. Sums of
epsilon and of delta are one valid filter (Rogers et al. 2016). Sums of Renyi divergence at one fixed order are another
(Feldman and Zrnic 2021).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from labeldp.accounting.costs import Cost
from labeldp.accounting.losses import ORDERS, Loss, rdp_to_epsilon
from labeldp.core.errors import BudgetExceeded
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Budget


@dataclass(frozen=True)
class PrivacyFilter:
    """A budget, and the order at which it adds up Renyi divergences; None if it adds epsilons and deltas."""

    budget: Budget
    order: float | None = None

    @classmethod
    def of(cls, budget: Budget) -> "PrivacyFilter":
        """Return the filter of a budget; the order is the one that admits the most Gaussian releases."""
        if budget.composition == "sum":
            return cls(budget)
        slack = {order: budget.epsilon - rdp_to_epsilon(0.0, order, budget.delta) for order in ORDERS}
        return cls(budget, max(slack, key=lambda order: slack[order] / order))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "PrivacyFilter":
        """Read what `to_json` wrote."""
        return cls(Budget(data["epsilon"], data["delta"], data["composition"]), data["order"])

    def to_json(self) -> dict[str, Any]:
        """Describe the filter; `from_json` reads it back."""
        return asdict(self.budget) | {"order": self.order}

    def cost(self, epsilon: Fraction | float, delta: Fraction, losses: Sequence[Loss]) -> Cost:
        """Return the cost to a unit; raise BudgetExceeded if no budget of this type admits such a loss."""
        if delta > 0 and self.budget.delta == 0:
            raise BudgetExceeded(
                "The budget has delta 0, so only purely private mechanisms fit: choose one, or a budget with delta."
            )
        if self.order is None:
            return Cost(epsilon, delta)
        rdp = math.fsum(loss.rdp(self.order) for loss in losses)
        if not math.isfinite(rdp):
            raise BudgetExceeded('This mechanism has no Renyi bound: use a budget with composition="sum".')
        return Cost(epsilon, delta, as_fraction(rdp))

    def guarantee(self, spent: Cost) -> tuple[Fraction | float, Fraction]:
        """Return the epsilon and delta that hold for a unit with this total cost."""
        if self.order is None:
            return spent.epsilon, spent.delta
        if not spent.rdp:
            return Fraction(0), Fraction(0)
        delta = self.budget.delta
        return as_fraction(rdp_to_epsilon(float(spent.rdp), self.order, delta)), as_fraction(delta)

    def remaining(self, spent: Cost) -> tuple[float, float]:
        """Return the epsilon and delta that remain."""
        epsilon, delta = self.guarantee(spent)
        delta_left = as_fraction(self.budget.delta) - (delta if self.order is None else 0)
        return float(max(as_fraction(self.budget.epsilon) - epsilon, Fraction(0))), float(max(delta_left, Fraction(0)))

    def admit(self, before: Cost, after: Cost, cost: Cost) -> None:
        """Raise BudgetExceeded if the total cost `after` of a unit exceeds the budget.

        A mechanism without any privacy fits no budget, and was allowed by name. It is admitted at its infinite cost,
        and no budget remains for these rows.

        Args:
            before: The total cost of the unit before the release.
            after: Its total cost after the release.
            cost: The cost of the release.
        """
        if math.isinf(cost.epsilon):
            return
        epsilon, delta = self.guarantee(after)
        if epsilon > as_fraction(self.budget.epsilon) or delta > as_fraction(self.budget.delta):
            remaining = self.remaining(before)
            raise BudgetExceeded(
                f"This release costs epsilon {float(cost.epsilon):.6g} and delta {float(cost.delta):.3g}, and the "
                f"budget has epsilon {remaining[0]:.6g} and delta {remaining[1]:.3g} left for these rows: ask for "
                "less, for other rows, or raise the budget."
            )
