"""Does a mechanism keep its promise? A lower bound on its epsilon, from draws of its releases.

Proof that the bound is valid. Two worlds are fixed that differ in one label (for votes: in one vote), and the mechanism
is drawn many times in each, with the noise of every release. One half of the draws, thrown away afterwards, chooses the
pair of worlds, the event and the world in which it is likelier. For the other half that choice is a constant, so the
number of draws with the event is binomial in each world, and `bounds.two_worlds` holds for it: no correction for what
was tried is needed. If the mechanism is (epsilon, delta)-private, the bound exceeds epsilon with a chance of
1 - confidence at most. It says nothing from above: a low bound can mean that the audit looked in the wrong place. Where
all draws are equal, the mechanism did not depend on the label at all, and the audit counts as not passed.
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
    """What a mechanism states, and what its epsilon is at least."""

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
        """Whether there was something to audit, and nothing was found against the stated epsilon."""
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
    """Bound a mechanism's epsilon from below, by `draws` of its releases in each of two neighbouring worlds.

    `worlds` are pairs to choose from; by default those that are worst for the mechanism, as far as this library knows.
    `epsilon` and `delta` are what it is held to; by default what it states itself.
    """
    error = error_rate(confidence)
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < _MIN_DRAWS:
        raise InputError(f"draws must be a whole number from {_MIN_DRAWS}: more draws give a sharper bound.")
    stated = stated_privacy(mechanism, delta)
    epsilon, delta = stated[0] if epsilon is None else epsilon, check_delta(stated[1])
    if pairs is None and not type(mechanism).__module__.startswith("labeldp."):
        raise InputError(
            "What is bad for a mechanism of your own nobody knows but you: name worlds=of_rows(...) or of_labels(...); "
            "worst_worlds(...) gives those that are bad for what it was made from."
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
