"""What a training by a recipe returns."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labeldp.core.guarantee import Guarantee
from labeldp.evaluate import ErrorScore, Score
from labeldp.learn.additive.effects import Effect
from labeldp.learn.predictor import Predictor
from labeldp.privacy.vault import Vault
from labeldp.recipes.registry import get_recipe
from labeldp.releases.base import Release

if TYPE_CHECKING:
    pass

_ONE_SIDED_SHARE = 0.95

_MAX_GRID_VALUES = 2_000  # values of a range

_N_EFFECTS_SHOWN = 8  # effects that a report describes

_LARGE_EPSILON = 8.0  # whoever gave a label even odds can be sure of it to 99.97 %

Report = Callable[[str], None]
RehearsalHook = Callable[["TrainingResult", Vault], None]


@dataclass(frozen=True)
class TrainingResult:
    """What a recipe gave: the model, all that was released on the way, and a private score of the model.

    Of several candidates, `winner` is the place of the model among them. `users` says how the labels of users
    took part. `effects` describe an additive model of a table.
    """

    recipe: str
    model: Predictor
    releases: tuple[Release, ...]
    guarantee: Guarantee
    score: Score | ErrorScore | None
    n_candidates: int = 1
    best_index: int = 0
    variant: int = 0  # which of several variants of learning the winner comes from
    user_summary: dict[str, Any] | None = None
    majority_share: float = 0.0  # the share of scored rows to which the model gives one of two classes
    interval_widening: float = 1.0  # by how much intervals of its numbers are wider than what it believes
    notes: tuple[str, ...] = ()  # what the user should know, candidates that were left out for example
    effects: tuple[Effect, ...] | None = None

    @property
    def overall_guarantee(self) -> Guarantee:
        """What holds for every label: the model's guarantee, and that of held-out labels, which lose to the score."""
        return self.guarantee.with_scoring_cost(0.0 if self.score is None else self.score.epsilon)

    def to_json(self) -> dict[str, Any]:
        """Describe the training for a report or a card."""
        return {
            "recipe": self.recipe,
            "summary": get_recipe(self.recipe).summary,
            "guarantee": self.guarantee.to_json(),
            "releases": [describe_release(release) for release in self.releases],
            "candidates": self.n_candidates,
            "users": self.user_summary,
            "warnings": self._collect_warnings(),
            "score": self.score and self.score.to_json(),
            "interval_widening": self.interval_widening,
            "effects": self._describe_effects(),
        }

    def _describe_effects(self) -> dict[str, Any] | None:
        """Describe the strongest effects, and whether trees add to them."""
        if self.effects is None:
            return None
        shown = [effect.to_json() for effect in self.effects[:_N_EFFECTS_SHOWN]]
        return {"count": len(self.effects), "shown": shown, "trees": hasattr(self.model, "trees")}

    def _collect_warnings(self) -> list[str]:
        epsilon, delta = self.guarantee.epsilon, self.guarantee.delta
        n_rows = self.releases[0].n_rows
        warnings = []
        if not math.isfinite(epsilon):
            warnings.append("This is NOT differentially private: the recipe's published claim does not hold.")
        elif epsilon > _LARGE_EPSILON:
            warnings.append(f"Epsilon {epsilon:g} is so large that a label is hardly protected.")
        if delta * n_rows > 1:
            warnings.append(
                f"Delta {delta:g} is not small against one in {n_rows:,} rows: some label may be told outright."
            )
        if self.majority_share >= _ONE_SIDED_SHARE:
            warnings.append(
                f"The model gives {self.majority_share:.1%} of the rows to one class, so that its accuracy says little: look "
                "at AUC, recall and precision."
            )
        return [*warnings, *self.notes]


def describe_release(release: Release) -> dict[str, Any]:
    n_rows = release.n_rows if release.row_mask is None else int(release.row_mask.sum())
    epsilon = release.parameters.get("epsilon", release.guarantee.epsilon)
    criterion = {"by": release.parameters["by"]} if "by" in release.parameters else {}
    return {"mechanism": release.mechanism, "rows": n_rows, "epsilon": epsilon, **criterion}
