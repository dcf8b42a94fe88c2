"""The audit of a mechanism: a lower bound on its epsilon, from draws of its releases.

Proof that the bound is valid. Two worlds are fixed that differ in one label (for votes: in one vote), and the mechanism
is drawn many times in each, with the noise of every release. One half of the draws, which is not used again, chooses
the pair of worlds, the event and the world in which it is likelier. For the other half that choice is a constant. So
the number of draws with the event is binomial in each world, and `bounds.epsilon_lower_bound` holds for it without a
correction for the number of candidates. If the mechanism is (epsilon, delta)-private, the bound exceeds epsilon with a
probability of 1 - confidence at most. It is no upper bound: a low value can mean that the audit compared the wrong
events. Where all draws are equal, the mechanism did not depend on the label at all, and the audit counts as not passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labeldp.audit.bounds import epsilon_lower_bound, error_rate
from labeldp.audit.event_selection import Outcomes, best_event
from labeldp.audit.neighbor_pairs import NeighborPair, stated_privacy, worst_neighbor_pairs
from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta, json_number

_MIN_DRAWS = 100


@dataclass(frozen=True)
class MechanismAudit:
    """The stated epsilon and delta of a mechanism, and a lower bound on its epsilon."""

    mechanism: str
    epsilon: float  # as stated
    delta: float
    lower: float
    confidence: float
    draws: int  # in each world, of which half chose the event
    worlds: str
    event: str
    constant: bool = False  # every draw in every world gave the same outcome: the audit shows nothing

    @property
    def holds(self) -> bool:
        """Whether draws differ, and the lower bound does not exceed the stated epsilon."""
        return not self.constant and self.lower <= self.epsilon

    def to_json(self) -> dict[str, Any]:
        """Describe the audit."""
        bounds = {
            "lower_bound": self.lower,
            "confidence": self.confidence,
            "stated_epsilon": json_number(self.epsilon),
        }
        names = ("mechanism", "delta", "draws", "worlds", "event", "constant", "holds")
        return {"kind": "mechanism", **bounds, **{name: getattr(self, name) for name in names}}


def audit_mechanism(
    mechanism: Any,
    *,
    pairs: NeighborPair | Sequence[NeighborPair] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    draws: int = 100_000,
    confidence: float = 0.99,
) -> MechanismAudit:
    """Bound a mechanism's epsilon from below, by draws of its releases in each of two neighboring worlds.

    Args:
        mechanism: The mechanism.
        pairs: A pair of worlds, or several to choose from; None for those of `worst_neighbor_pairs`.
        epsilon: The epsilon to audit; None for the one that the mechanism states.
        delta: The delta to audit; None for the one that the mechanism states.
        draws: The number of draws in each world. One half of them chooses the pair and the event.
        confidence: The confidence of the bound.

    Raises:
        InputError: A parameter is invalid, or `pairs` is missing for a mechanism that is not of this library.
    """
    error = error_rate(confidence)
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < _MIN_DRAWS:
        raise InputError(f"draws must be a whole number from {_MIN_DRAWS}: more draws give a sharper bound.")
    stated = stated_privacy(mechanism, delta)
    epsilon, delta = stated[0] if epsilon is None else epsilon, check_delta(stated[1])
    if pairs is None and not type(mechanism).__module__.startswith("labeldp."):
        raise InputError(
            "For a mechanism of your own, name the worlds to compare: pairs=pair_of_rows(...) or pair_of_labels(...). "
            "worst_neighbor_pairs(...) returns those of the mechanism that it extends."
        )
    candidates = (
        worst_neighbor_pairs(mechanism)
        if pairs is None
        else [pairs]
        if isinstance(pairs, NeighborPair)
        else list(pairs)
    )
    n_selection_draws = max(_MIN_DRAWS // 2, draws // 2 // len(candidates))
    selection_draws = [(pair.draw(0, n_selection_draws), pair.draw(1, n_selection_draws)) for pair in candidates]
    events = [
        best_event(*pair_draws, delta, error, pair.ordered)
        for pair, pair_draws in zip(candidates, selection_draws, strict=True)
    ]
    best = max(range(len(candidates)), key=lambda index: events[index][0])
    pair, event = candidates[best], events[best][1]
    n_test_draws = draws - draws // 2
    test_draws = [pair.draw(world, n_test_draws) for world in (event.world, 1 - event.world)]
    event_counts = [event.count_draws(outcomes) for outcomes in test_draws]
    constant = all(map(_is_constant, selection_draws)) and _is_constant((*selection_draws[best], *test_draws))
    lower = float(epsilon_lower_bound(event_counts[0], event_counts[1], n_test_draws, delta, error))
    name = type(mechanism).__name__
    findings = lower, float(confidence), draws, pair.name, str(event), constant
    return MechanismAudit(name, float(epsilon), delta, *findings)


def _is_constant(draws: Sequence[Outcomes]) -> bool:
    """Whether all draws of all worlds gave the same outcome."""
    return all(bool((outcomes == draws[0][0]).all()) for outcomes in draws)
