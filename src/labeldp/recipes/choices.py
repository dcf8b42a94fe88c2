"""The choice among recipes, by what an advisor's lines say of them.

| the first that holds | take |
|---|---|
| randomized response keeps 95 % of the labels | `randres`; images: `randres-mixup` |
| noisy sums by class stand out, of a table of up to 20 classes with rows enough for bins | `additive` |
| noisy sums by class stand out, of any other table or of embeddings | `log-linear` |
| images, delta, and 500 rows a class, or 500 / epsilon | `refine`, with a label-free encoder |
| noisy labels are worth 100 clean ones a class, or half of all | images: `randres-augdescent`; else see below |
| images, and a cluster vote among the noisy labels survives | `randres-denoise` |
| table or embeddings, and counts of clusters survive with a fifth of epsilon | `cluster-prior` |
| otherwise | `noise-cluster` |

If positives are said to be rare, votes of clusters are passed over, since all of them would say no, and a class counts
as many rows as there are positives.

Elsewhere than on images, noisy labels are best learned from by `alibi` or `randres`, whose mechanism tells more about a
label (in nats): one-hot noise for many classes and a small epsilon, randomized response for the rest.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from labeldp.recipes.arithmetic import Setting, rare_right
from labeldp.recipes.budget_split import (
    ENOUGH,
    FEW_CLASSES,
    least_for_bins,
    ratio_to_noise,
    share_of_sums,
)

if TYPE_CHECKING:
    from labeldp.recipes.advisor import Line

# Section 6 of Tang et al. (2022): where nearly all labels are right, plain training will do.
CLEAN_ENOUGH = 0.95
# Noisy labels of n rows hold n I nats, as many as n I / log K clean labels. In the tables of Tang et al. (2022), noisy
# labels alone taught a network where that was 108 labels a class or more (CIFAR-100 at epsilon 4, CIFAR-10 at 1,
# CINIC-10 at 1) and failed at 57 and less (CINIC-10 at 0.5, CIFAR-10 at 0.5, CIFAR-100 at 2).
WORTH_ENOUGH = 100
_NEEDS_OF_SUMS = {
    "additive": "An additive model needs only counts of bins by class, and one label moves one count in each column",
    "log-linear": "A linear model needs only sums of rows by class, and one label hardly moves a sum",
}


def choices(at: Setting, lines: "dict[str, Line]") -> Iterator[tuple[str, str]]:
    """Give what holds of the table above, in its order, each with a reason."""
    images = at.features == "images"
    right, agreed, moments = lines["randres"].right or 0.0, lines["randres-denoise"], lines["moments"]
    clean = right if at.positives is None else rare_right(at.epsilon, at.positives)
    sums_survive = moments.survives_from is not None and moments.survives_from <= at.epsilon
    if clean >= CLEAN_ENOUGH:
        yield (
            "randres-mixup" if images else "randres",
            f"Randomized response keeps {right:.1%} of the labels: plain training will do.",
        )
    if not images and sums_survive:
        best = _best_of_sums(at, lines)
        yield (
            best,
            f"{_NEEDS_OF_SUMS[best]}: sums by class stand out from about epsilon {_short(moments.survives_from)}, "
            f"while of the labels released one by one {right:.1%} would be right.",
        )
    rowwise = "randres-augdescent" if images else max("randres", "alibi", key=lambda name: lines[name].nats or 0.0)
    if at.positives is not None:
        yield from _rare_choices(at, lines, "randres-mixup" if images else rowwise, clean)
        return
    many = min(at.epsilon, 1.0) * at.rows / at.classes >= ENOUGH
    if images and at.delta and sums_survive and many:
        yield (
            "refine",
            "Sums of rows by class, as an encoder sees them that needs no label (`labeldp encode` makes one), stand "
            f"out from about epsilon {_short(moments.survives_from)}. They teach networks, and sums over what these "
            f"see say more. Of the labels released one by one {right:.1%} would be right.",
        )
    if (lines[rowwise].worth or 0.0) >= min(WORTH_ENOUGH, at.rows / at.classes / 2):
        tells = (
            f"A noisy label tells {lines[rowwise].nats:.3f} nats, so all of them are worth about "
            f"{_round(lines[rowwise].worth or 0.0):,} clean labels a class"
        )
        if images:
            yield rowwise, f"{tells}: enough for networks that sort right labels from wrong ones while they learn."
        else:
            other = "alibi" if rowwise == "randres" else "randres"
            yield rowwise, f"{tells}; those of {other} would tell {lines[other].nats:.3f} nats each."
    if images and (agreed.survives_from or math.inf) <= at.epsilon:
        yield (
            "randres-denoise",
            f"Only {right:.1%} of the labels are right, but clusters vote reliably: of the {agreed.kept:.1%} of labels "
            f"that agree with their cluster's vote, {agreed.agreed:.1%} are right; the rest is learned without labels.",
        )
    prior, counts = lines["cluster-prior"], lines["noise-cluster"]
    if not images and (prior.survives_from or math.inf) <= at.epsilon:
        yield (
            "cluster-prior",
            "Counts of clusters survive with a fifth of epsilon and make a prior; the rest of it answers row by row "
            "among the classes that the prior leaves open.",
        )
    if (counts.survives_from or math.inf) <= at.epsilon:
        yield (
            "noise-cluster",
            f"Too little is left of each label ({right:.1%} right), but votes of clusters survive from epsilon "
            f"{_short(counts.survives_from)}; the model can be no better than the clusters are.",
        )
    else:
        reach = counts.survives_from
        known = reach is not None and math.isfinite(reach)
        when = f"from epsilon {_short(reach)} only" if known else "at no epsilon with so few rows"
        yield (
            "noise-cluster",
            f"It is the least bad: nothing works well here. A vote of clusters survives {when}: raise epsilon, bring "
            "more rows, or take fewer clusters.",
        )


def _best_of_sums(at: Setting, lines: "dict[str, Line]") -> str:
    """Return the recipe of sums that `auto` begins with, for a table of so many columns as are assumed."""
    own = at.epsilon * share_of_sums(at.epsilon, at.features == "table" and at.classes <= FEW_CLASSES)
    ratio = ratio_to_noise(at.rows, at.classes, at.columns, own, at.delta)
    binned = not lines["additive"].reason and at.classes <= FEW_CLASSES and ratio >= least_for_bins(at.delta)
    return "additive" if binned else "log-linear"


def _rare_choices(at: Setting, lines: "dict[str, Line]", rowwise: str, clean: float) -> Iterator[tuple[str, str]]:
    """Where positives are rare, votes of clusters all say no: what is left are labels one by one, and sums."""
    worth = lines[rowwise].worth or 0.0
    labels = (
        f"Of the rows that randomized response calls positive {clean:.1%} are; all noisy labels are worth about "
        f"{_round(worth):,} clean positives"
    )
    if worth >= min(WORTH_ENOUGH, at.counted / 4):
        yield rowwise, f"{labels}."
    last = rowwise if at.features == "images" else _best_of_sums(at, lines)
    stand_out = _short(lines["moments"].survives_from)
    yield (
        last,
        f"Nothing works well here. {labels}, and sums of rows by class stand out from epsilon {stand_out} only: raise "
        "epsilon, or bring more positives.",
    )


def what_accuracy_means(at: Setting) -> str:
    """Say by what to judge a model where positives are rare."""
    positives, held = at.positives or 0.0, min(at.rows // 10, 2_500)
    return (
        f" Accuracy says little here: {1 - positives:.1%} is what always saying no gets. Judge by AUC, recall and "
        f"precision; a score on {held:,} held-out rows sees about {round(held * positives):,} positives."
    )


def _short(epsilon: float | None) -> str:
    return f"{epsilon:.2g}" if epsilon is not None and epsilon < math.inf else "infinity"


def _round(number: float) -> int:
    """Round to two digits: the figure is no better."""
    return int(float(f"{number:.2g}"))
