"""The recommendation of a recipe, by the forecasts of all recipes.

| the first that applies | recipe |
|---|---|
| randomized response retains 95 % of the labels | `randres`; images: `randres-mixup` |
| noisy sums by class stand out, of a table with up to 20 classes and enough rows for bins | `additive` |
| noisy sums by class stand out, of any other table or of embeddings | `log-linear` |
| images, delta, and 500 rows a class, or 500 / epsilon | `refine`, with a label-free encoder |
| noisy labels are worth 100 clean ones a class, or half of all | images: `randres-augdescent`; else see below |
| images, and votes of clusters among the noisy labels are reliable | `randres-denoise` |
| table or embeddings, and votes of noisy counts are reliable with a fifth of epsilon | `cluster-prior` |
| otherwise | `noise-cluster` |

If positives are rare, votes of clusters are skipped, because all of them would be negative. A class then has as many
rows as there are positives.

Except for images, the recipe for noisy labels is that of `alibi` and `randres` whose mechanism is more informative (in
nats): one-hot noise for many classes and a small epsilon, and randomized response otherwise.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from labeldp.recipes.advisor.formulas import ProblemSpec, rare_precision
from labeldp.recipes.budget_split import (
    FEW_CLASSES,
    SUFFICIENT_SIGNAL,
    bin_count_snr,
    min_snr_for_bins,
    sums_epsilon_fraction,
)

if TYPE_CHECKING:
    from labeldp.recipes.advisor.forecast import RecipeForecast

# Accuracy of noisy labels from which plain training suffices (Tang et al. 2022, section 6).
MIN_CLEAN_ACCURACY = 0.95
# Clean labels of a class with the information of all noisy labels, from which noisy labels suffice to train a network.
# Noisy labels of n rows hold n I nats, as many as n I / log K clean labels. In the tables of Tang et al. (2022), noisy
# labels sufficed from 108 labels per class (CIFAR-100 at epsilon 4, CIFAR-10 at 1, CINIC-10 at 1) and failed up to 57
# (CINIC-10 at 0.5, CIFAR-10 at 0.5, CIFAR-100 at 2).
MIN_CLEAN_LABELS = 100
_SUMS_RATIONALE = {
    "additive": "An additive model needs only counts of bins by class, and one label moves one count in each column",
    "log-linear": "A linear model needs only sums of rows by class, and one label hardly moves a sum",
}


def applicable_recipes(spec: ProblemSpec, forecasts: "dict[str, RecipeForecast]") -> Iterator[tuple[str, str]]:
    """Yield the recipes of the table above that apply, in its order, each with a reason."""
    is_images = spec.features == "images"
    accuracy = forecasts["randres"].label_accuracy or 0.0
    denoise, moments = forecasts["randres-denoise"], forecasts["moments"]
    clean_accuracy = accuracy if spec.positives is None else rare_precision(spec.epsilon, spec.positives)
    sums_survive = moments.min_epsilon is not None and moments.min_epsilon <= spec.epsilon
    if clean_accuracy >= MIN_CLEAN_ACCURACY:
        yield (
            "randres-mixup" if is_images else "randres",
            f"Randomized response keeps {accuracy:.1%} of the labels: plain training will do.",
        )
    if not is_images and sums_survive:
        best = _choose_sums_recipe(spec, forecasts)
        yield (
            best,
            f"{_SUMS_RATIONALE[best]}: sums by class stand out from about epsilon "
            f"{_format_epsilon(moments.min_epsilon)}, while of the labels released one by one {accuracy:.1%} would be "
            "right.",
        )
    per_row_recipe = (
        "randres-augdescent" if is_images else max("randres", "alibi", key=lambda name: forecasts[name].nats or 0.0)
    )
    if spec.positives is not None:
        yield from _applicable_for_rare(
            spec, forecasts, "randres-mixup" if is_images else per_row_recipe, clean_accuracy
        )
        return
    has_enough_rows = min(spec.epsilon, 1.0) * spec.n_rows / spec.n_classes >= SUFFICIENT_SIGNAL
    if is_images and spec.delta and sums_survive and has_enough_rows:
        yield (
            "refine",
            "Sums by class of the embeddings of an encoder, which is trained without labels, stand out from about "
            f"epsilon {_format_epsilon(moments.min_epsilon)}. Networks learn from them, and sums over the networks' "
            f"embeddings are more informative. Of the labels released one by one {accuracy:.1%} would be right.",
        )
    if (forecasts[per_row_recipe].clean_labels_per_class or 0.0) >= min(
        MIN_CLEAN_LABELS, spec.n_rows / spec.n_classes / 2
    ):
        statement = (
            f"A noisy label tells {forecasts[per_row_recipe].nats:.3f} nats, so all of them are worth about "
            f"{_round_to_two_digits(forecasts[per_row_recipe].clean_labels_per_class or 0.0):,} clean labels a class"
        )
        if is_images:
            yield (
                per_row_recipe,
                f"{statement}: enough for networks that sort right labels from wrong ones while they learn.",
            )
        else:
            other = "alibi" if per_row_recipe == "randres" else "randres"
            yield per_row_recipe, f"{statement}; those of {other} would tell {forecasts[other].nats:.3f} nats each."
    if is_images and (denoise.min_epsilon or math.inf) <= spec.epsilon:
        yield (
            "randres-denoise",
            f"Only {accuracy:.1%} of the labels are right, but clusters vote reliably: of the "
            f"{denoise.agreement_rate:.1%} of labels that agree with their cluster's vote, "
            f"{denoise.agreed_accuracy:.1%} are right; the rest is learned without labels.",
        )
    prior, counts = forecasts["cluster-prior"], forecasts["noise-cluster"]
    if not is_images and (prior.min_epsilon or math.inf) <= spec.epsilon:
        yield (
            "cluster-prior",
            "Counts of clusters survive with a fifth of epsilon and make a prior; the rest of it answers row by row "
            "among the classes that the prior leaves open.",
        )
    if (counts.min_epsilon or math.inf) <= spec.epsilon:
        yield (
            "noise-cluster",
            f"Too little is left of each label ({accuracy:.1%} right), but votes of clusters survive from epsilon "
            f"{_format_epsilon(counts.min_epsilon)}; the model can be no better than the clusters are.",
        )
    else:
        min_epsilon = counts.min_epsilon
        is_reachable = min_epsilon is not None and math.isfinite(min_epsilon)
        condition = (
            f"from epsilon {_format_epsilon(min_epsilon)} only" if is_reachable else "at no epsilon with so few rows"
        )
        yield (
            "noise-cluster",
            f"It is the least bad: nothing works well here. A vote of clusters survives {condition}: raise epsilon, "
            "bring more rows, or take fewer clusters.",
        )


def _choose_sums_recipe(spec: ProblemSpec, forecasts: "dict[str, RecipeForecast]") -> str:
    """Return the recipe of sums that `auto` takes, for a table with the assumed number of columns."""
    sums_epsilon = spec.epsilon * sums_epsilon_fraction(
        spec.epsilon, spec.features == "table" and spec.n_classes <= FEW_CLASSES
    )
    snr = bin_count_snr(spec.n_rows, spec.n_classes, spec.n_columns, sums_epsilon, spec.delta)
    uses_bins = (
        not forecasts["additive"].reason and spec.n_classes <= FEW_CLASSES and snr >= min_snr_for_bins(spec.delta)
    )
    return "additive" if uses_bins else "log-linear"


def _applicable_for_rare(
    spec: ProblemSpec, forecasts: "dict[str, RecipeForecast]", per_row_recipe: str, clean_precision: float
) -> Iterator[tuple[str, str]]:
    """Yield the recipes that apply to rare positives: those of single labels and of sums."""
    clean_labels = forecasts[per_row_recipe].clean_labels_per_class or 0.0
    statement = (
        f"Of the rows that randomized response calls positive {clean_precision:.1%} are; all noisy labels are worth "
        f"about {_round_to_two_digits(clean_labels):,} clean positives"
    )
    if clean_labels >= min(MIN_CLEAN_LABELS, spec.n_effective_rows / 4):
        yield per_row_recipe, f"{statement}."
    fallback = per_row_recipe if spec.features == "images" else _choose_sums_recipe(spec, forecasts)
    min_epsilon = _format_epsilon(forecasts["moments"].min_epsilon)
    yield (
        fallback,
        f"Nothing works well here. {statement}, and sums of rows by class stand out from epsilon {min_epsilon} only: "
        "raise epsilon, or bring more positives.",
    )


def explain_rare_accuracy(spec: ProblemSpec) -> str:
    """Return a sentence about the metrics that suit rare positives."""
    positives, n_held_out = spec.positives or 0.0, min(spec.n_rows // 10, 2_500)
    return (
        f" Accuracy says little here: {1 - positives:.1%} is what always saying no gets. Judge by AUC, recall and "
        f"precision; a score on {n_held_out:,} held-out rows sees about {round(n_held_out * positives):,} positives."
    )


def _format_epsilon(epsilon: float | None) -> str:
    return f"{epsilon:.2g}" if epsilon is not None and epsilon < math.inf else "infinity"


def _round_to_two_digits(number: float) -> int:
    """Round to two significant digits."""
    return int(float(f"{number:.2g}"))
