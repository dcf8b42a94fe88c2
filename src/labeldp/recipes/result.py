"""The result of a training by a recipe."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labeldp.core.guarantee import Guarantee
from labeldp.evaluate import ErrorScore, Score
from labeldp.learn.additive.effects import Effect
from labeldp.learn.predictor import Predictor
from labeldp.privacy.vault import Vault
from labeldp.recipes.registry import get_recipe
from labeldp.releases.base import Release

# Share of rows predicted as one of two classes, from which a warning says that accuracy is not informative.
_ONE_SIDED_SHARE = 0.95
# Number of effects of an additive model that a report describes.
_N_EFFECTS_SHOWN = 8
# Epsilon above which a warning is given: even prior odds of a label can become a posterior of 99.97 %.
_LARGE_EPSILON = 8.0

# Is called in a rehearsal with the result and the vault of synthetic labels.
RehearsalHook = Callable[["TrainingResult", Vault], None]


@dataclass(frozen=True)
class TrainingResult:
    """The model of a recipe, all releases of the training, and a private score of the model.

    Attributes:
        recipe: The name of the recipe.
        model: The trained model; of several candidates, the selected one.
        releases: All releases on which the model depends, the private selection included.
        guarantee: The guarantee of these releases together.
        score: The private score on held-out rows; None if no rows were held out.
        n_candidates: The number of models to select from.
        best_index: The index of the selected model among the candidates.
        variant: The index of the variant that the selected model comes from.
        user_summary: How many labels of users took part; None if each label is a privacy unit.
        majority_share: The share of scored rows that the model predicts as the same one of two classes.
        interval_widening: The factor by which intervals of predicted numbers are wider than the model's own.
        notes: Notes for the user, about failed candidates for example.
        effects: The effects of an additive model of a table.
    """

    recipe: str
    model: Predictor
    releases: tuple[Release, ...]
    guarantee: Guarantee
    score: Score | ErrorScore | None
    n_candidates: int = 1
    best_index: int = 0
    variant: int = 0
    user_summary: dict[str, Any] | None = None
    majority_share: float = 0.0
    interval_widening: float = 1.0
    notes: tuple[str, ...] = ()
    effects: tuple[Effect, ...] | None = None

    @property
    def overall_guarantee(self) -> Guarantee:
        """The guarantee of every label: that of the training labels and that of the held-out labels of the score."""
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
        """Describe the strongest effects, and whether the model adds boosted trees to them."""
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
                f"Delta {delta:g} is not small against one in {n_rows:,} rows: some label may be disclosed outright."
            )
        if self.majority_share >= _ONE_SIDED_SHARE:
            warnings.append(
                f"The model predicts one class for {self.majority_share:.1%} of the rows, so that its accuracy is not "
                "informative: compare AUC, recall and precision."
            )
        return [*warnings, *self.notes]


def describe_release(release: Release) -> dict[str, Any]:
    """Describe a release for a report: mechanism, rows, epsilon and, of a selection, its criterion."""
    n_rows = release.n_rows if release.row_mask is None else int(release.row_mask.sum())
    epsilon = release.parameters.get("epsilon", release.guarantee.epsilon)
    criterion = {"by": release.parameters["by"]} if "by" in release.parameters else {}
    return {"mechanism": release.mechanism, "rows": n_rows, "epsilon": epsilon, **criterion}
