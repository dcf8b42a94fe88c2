"""Forecasts of all recipes, and a recommendation, from public facts: rows, classes, epsilon, delta, features, device.

Forecasts use no labels, no data and no randomness. Every figure comes from `formulas`, which computes with the
distributions of the mechanisms. The only assumption about the data is `purity`: the share of rows that belong to the
largest class of their cluster, the other classes being equally frequent.

`selection` has the order in which recipes are considered. A recipe that would take more than a day on the device is
skipped while another one applies. Teacher ensembles are listed and never recommended: their cost depends on the
agreement of the teachers, which is no public fact.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, get_args

import numpy as np

from labeldp.accounting.calibration import bisect_largest
from labeldp.core.errors import InputError
from labeldp.core.guarantee import check_delta, check_epsilon
from labeldp.privacy.mechanisms.base import divide_epsilon
from labeldp.recipes.advisor.formulas import (
    RELIABLE_VOTE,
    Device,
    FeatureKindName,
    ProblemSpec,
    agreed_accuracy,
    agreement_rate,
    gaussian_information,
    laplace_accuracy,
    laplace_information,
    max_clusters,
    max_noise_scale,
    min_epsilon_for_count_vote,
    min_epsilon_for_response_vote,
    noise_deviation,
    noisy_argmax_accuracy,
    prior_response_accuracy,
    rare_label_efficiency,
    response_accuracy,
    response_information,
    response_vote_accuracy,
)
from labeldp.recipes.advisor.selection import applicable_recipes, explain_rare_accuracy
from labeldp.recipes.budget_split import (
    CLUSTER_COUNTS_BELOW,
    FEW_CLASSES,
    bin_count_snr,
    default_n_crosses,
    split_composed,
    split_epsilon,
    split_refine_epsilon,
    split_with_crosses,
    sums_epsilon_fraction,
)
from labeldp.recipes.vote_calibration import (
    ANSWERS_PER_CLASS,
    QUERIES_PER_ANSWER,
    calibrate_confident_votes,
    calibrate_stable_votes,
    count_confident_teachers,
    count_stable_teachers,
    max_teachers,
    min_unanimous_teachers,
)

# Fraction of epsilon for the counts of `cluster-prior`, its default.
PRIOR_EPSILON_FRACTION = 0.2
# Longest training that is recommended, in minutes.
_MAX_MINUTES = 24 * 60.0

# Rows per second through a network, forward and backward: orders of magnitude, for two cores and for a recent GPU.
_ROWS_PER_SECOND = {
    ("table", "cpu"): 1e5,
    ("table", "cuda"): 1e6,
    ("embeddings", "cpu"): 1e5,
    ("embeddings", "cuda"): 1e6,
    ("images", "cpu"): 50.0,
    ("images", "cuda"): 1e4,
}
# Passes over all rows in a phase of a recipe: epochs times the work for a row, in units of plain training.
_PASSES = {
    "supervised": 100,
    "fixmatch": 600,
    "augdescent": 800,
    "coteaching": 200,
    "gan": 200,
    "encoder": 1000,
    "kmeans": 20,
    "bins": 20,
    "softmax": 50,
}


class Use(NamedTuple):
    """One use of labels: a mechanism, its epsilon and delta, and the fraction of the rows that it releases."""

    mechanism: str
    epsilon: float
    delta: float = 0.0
    row_fraction: float = 1.0


@dataclass(frozen=True)
class RecipeForecast:
    """The forecast of one recipe. A figure is None if public facts do not determine it.

    Attributes:
        recipe: The name of the recipe.
        uses: The uses of labels.
        minutes: The estimated time of training, in minutes.
        label_accuracy: The share of correct labels after the mechanism.
        agreed_accuracy: The share of correct labels among those that agree with the vote of their cluster.
        agreement_rate: The share of labels that agree with the vote of their cluster.
        nats: The mutual information of a released label and a uniform label.
        clean_labels_per_class: The number of clean labels of a class with the information of all released labels.
        min_epsilon: The smallest epsilon at which votes of clusters, or sums by class, stand out from the noise.
        n_teachers: The number of teachers.
        reason: Why the recipe cannot run; empty if it can.
    """

    recipe: str
    uses: tuple[Use, ...]
    minutes: float
    label_accuracy: float | None = None
    agreed_accuracy: float | None = None
    agreement_rate: float | None = None
    nats: float | None = None
    clean_labels_per_class: float | None = None
    min_epsilon: float | None = None
    n_teachers: int | None = None
    reason: str = ""

    @property
    def duration(self) -> str:
        """The approximate time in words."""
        limits = {"seconds": 1.0, "minutes": 40.0, "an hour": 100.0, "hours": 20 * 60.0, "days": 14 * 24 * 60.0}
        return next((word for word, limit in limits.items() if self.minutes < limit), "weeks")


@dataclass(frozen=True)
class Advice:
    """The forecast of each recipe, and the recommendation. `auto` has no forecast, because it chooses itself.

    Attributes:
        spec: The public facts.
        forecasts: The forecast of each recipe.
        recommended: The name of the recommended recipe.
        reason: The reason of the recommendation.
        nats: The information of a label by each mechanism that acts on single rows, the most informative first.
        max_clusters: The most clusters of the assumed purity whose votes stand out from the noise.
    """

    spec: ProblemSpec
    forecasts: tuple[RecipeForecast, ...]
    recommended: str
    reason: str
    nats: dict[str, float]
    max_clusters: int

    def forecast(self, recipe: str) -> RecipeForecast:
        """Return the forecast of one recipe."""
        return next(forecast for forecast in self.forecasts if forecast.recipe == recipe)


def _forecast_recipes(spec: ProblemSpec, nats: dict[str, float]) -> Iterator[RecipeForecast]:
    """Yield the forecast of each recipe, in the order of the documentation."""
    epsilon, delta, n_classes = spec.epsilon, spec.delta, spec.n_classes
    accuracy, response_nats = response_accuracy(epsilon, n_classes), nats["RandomizedResponse"]
    clean_labels_per_nat = spec.n_rows / math.log(n_classes) / n_classes
    if spec.positives is not None:
        clean_labels_per_nat = (
            spec.positives * spec.n_rows * rare_label_efficiency(epsilon, spec.positives) / response_nats
        )
    noisy_labels = (Use("RandomizedResponse", epsilon),)
    clustering = "encoder" if spec.features == "images" else "kmeans"

    def forecast_plain(recipe: str, phase: str) -> RecipeForecast:
        return RecipeForecast(
            recipe,
            noisy_labels,
            _estimate_minutes(spec, phase),
            accuracy,
            nats=response_nats,
            clean_labels_per_class=response_nats * clean_labels_per_nat,
        )

    yield forecast_plain("randres", "supervised")
    yield forecast_plain("randres-mixup", "supervised")
    # Each of two stages uses half of the rows, so that epsilon is spent once. With a calibrated prior, the labels of
    # the second stage are at least as accurate as those of the first. The difference depends on the first model.
    stages = (Use("RandomizedResponse", epsilon, row_fraction=0.5), Use("RRWithPrior", epsilon, row_fraction=0.5))
    yield RecipeForecast("lp-mst", stages, _estimate_minutes(spec, "supervised", "supervised"), accuracy)
    yield _forecast_cluster_prior(spec, clustering)
    best_one_hot = max((name for name in nats if name.startswith("OneHot")), key=nats.__getitem__)
    is_gaussian = best_one_hot == "OneHotGaussian"
    yield RecipeForecast(
        "alibi",
        (Use(best_one_hot, epsilon, delta if is_gaussian else 0.0),),
        _estimate_minutes(spec, "supervised"),
        noisy_argmax_accuracy("gaussian", noise_deviation(epsilon, delta), 1, n_classes)
        if is_gaussian
        else laplace_accuracy(epsilon, n_classes),
        nats=nats[best_one_hot],
        clean_labels_per_class=nats[best_one_hot] * clean_labels_per_nat,
    )
    vote_accuracy = noisy_argmax_accuracy("laplace", 2 / epsilon, spec.margin, n_classes)
    yield RecipeForecast(
        "noise-cluster",
        (Use("GroupHistogram", epsilon),),
        _estimate_minutes(spec, clustering),
        _vote_label_accuracy(spec, vote_accuracy),
        min_epsilon=min_epsilon_for_count_vote(spec, 0.0),
    )
    yield RecipeForecast(
        "moments",
        (Use("LinearQuery", epsilon, delta),),
        _estimate_minutes(spec, clustering),
        min_epsilon=min_epsilon_for_sums(spec),
    )
    yield _forecast_additive(spec)
    yield _forecast_log_linear(spec, clustering)
    yield _forecast_smooth_moments(spec, clustering)
    yield _forecast_refine(spec, clustering)
    yield forecast_plain("randres-ssl", "fixmatch")
    yield forecast_plain("randres-augdescent", "augdescent")
    cluster_accuracy = _vote_label_accuracy(spec, response_vote_accuracy(spec, epsilon))
    yield RecipeForecast(
        "randres-denoise",
        noisy_labels,
        _estimate_minutes(spec, clustering, "fixmatch"),
        accuracy,
        agreed_accuracy(epsilon, cluster_accuracy),
        agreement_rate(epsilon, n_classes, cluster_accuracy),
        response_nats,
        response_nats * clean_labels_per_nat,
        min_epsilon_for_response_vote(spec),
    )
    yield from _forecast_teachers(spec, clustering)


def _forecast_cluster_prior(spec: ProblemSpec, clustering: str) -> RecipeForecast:
    counts_epsilon, min_epsilon = PRIOR_EPSILON_FRACTION * spec.epsilon, min_epsilon_for_count_vote(spec, 0.0)
    vote_accuracy = noisy_argmax_accuracy("laplace", 2 / counts_epsilon, spec.margin, spec.n_classes)
    uses = (Use("GroupHistogram", counts_epsilon), Use("RRWithPrior", spec.epsilon - counts_epsilon))
    accuracy = prior_response_accuracy(
        spec.epsilon - counts_epsilon, spec.n_classes, _vote_label_accuracy(spec, vote_accuracy)
    )
    return RecipeForecast(
        "cluster-prior",
        uses,
        _estimate_minutes(spec, clustering, "supervised"),
        accuracy,
        min_epsilon=min_epsilon / PRIOR_EPSILON_FRACTION,
    )


def _forecast_additive(spec: ProblemSpec) -> RecipeForecast:
    """Forecast counts of bins, and the default crosses for a table with the assumed number of columns."""
    if spec.features != "table":
        return RecipeForecast("additive", (), math.inf, reason="needs a table")
    n_crosses = default_n_crosses(bin_count_snr(spec.n_rows, spec.n_classes, spec.n_columns, spec.epsilon, spec.delta))
    fractions = split_with_crosses(0, n_crosses, spec.delta)
    try:
        budgets = split_composed(spec.epsilon, spec.delta, fractions) if n_crosses else [(spec.epsilon, spec.delta)]
    except InputError:  # a part is below the smallest epsilon
        return RecipeForecast("additive", (), math.inf, reason="needs a larger epsilon")
    mechanisms = ["LinearQuery"] + ["LargestResiduals", "LinearQuery"] * n_crosses
    uses = tuple(Use(name, *budget) for name, budget in zip(mechanisms, budgets, strict=True))
    return RecipeForecast("additive", uses, _estimate_minutes(spec, "bins"), min_epsilon=min_epsilon_for_sums(spec))


def _forecast_log_linear(spec: ProblemSpec, clustering: str) -> RecipeForecast:
    uses, accuracy = [Use("LinearQuery", spec.epsilon, spec.delta)], None
    fraction = sums_epsilon_fraction(spec.epsilon, spec.features == "table" and spec.n_classes <= FEW_CLASSES)
    if fraction < 1:
        sums_epsilon, labels_epsilon = split_epsilon(spec.epsilon, fraction)
        among_all = spec.n_classes <= FEW_CLASSES
        uses = [
            Use("LinearQuery", sums_epsilon, spec.delta),
            Use("RandomizedResponse" if among_all else "RRWithPrior", labels_epsilon),
        ]
        # With a prior, the accuracy depends on the sums, which are not public.
        accuracy = response_accuracy(labels_epsilon, spec.n_classes) if among_all else None
    phases = (clustering,) if spec.features == "images" else ()
    minutes = _estimate_minutes(spec, *phases, "softmax")
    return RecipeForecast("log-linear", tuple(uses), minutes, accuracy, min_epsilon=min_epsilon_for_sums(spec))


def _forecast_smooth_moments(spec: ProblemSpec, clustering: str) -> RecipeForecast:
    reason = "needs embeddings or images" if spec.features == "table" else ""
    return RecipeForecast(
        "smooth-moments",
        (Use("LinearQuery", spec.epsilon, spec.delta),),
        _estimate_minutes(spec, clustering),
        reason=reason,
    )


def _forecast_refine(spec: ProblemSpec, clustering: str) -> RecipeForecast:
    rows_per_class = spec.n_rows / spec.n_classes
    sum_epsilons, response_epsilon = split_refine_epsilon(spec.epsilon, rows_per_class)
    uses = [Use("LinearQuery", epsilon, divide_epsilon(spec.delta, len(sum_epsilons))) for epsilon in sum_epsilons]
    if spec.epsilon * rows_per_class < CLUSTER_COUNTS_BELOW:
        uses = [Use("GroupHistogram", spec.epsilon)]
    uses += [Use("RRMaxInformation", response_epsilon)] if response_epsilon else []
    # A network from each of two encoders by pseudo-labels, one by posteriors, and a last one; some have fewer epochs.
    minutes = _estimate_minutes(spec, clustering, "fixmatch", "supervised", "supervised", "supervised")
    reason = "" if spec.features == "images" else "needs images"
    return RecipeForecast("refine", tuple(uses), minutes, min_epsilon=min_epsilon_for_sums(spec), reason=reason)


def min_epsilon_for_sums(spec: ProblemSpec) -> float:
    """Return the smallest epsilon at which noisy sums of rows separate classes as well as counts of clusters do.

    A row of norm 1 scores a class by the noisy sum of that class's rows. Noise of deviation sigma on each column is
    noise of deviation sigma on the score. A label changes the sums as it would change counts of classes. So sums
    with Gaussian noise need the epsilon of counts, with one cluster for each class. Laplace noise depends on the l1
    norm of a row, at most sqrt(columns): its deviation is sqrt(2) * 2 * sqrt(columns) / epsilon.
    """
    class_spec = replace(spec, n_clusters=spec.n_classes)
    if spec.delta:
        return min_epsilon_for_count_vote(class_spec, spec.delta)
    noise_scale = max_noise_scale("gaussian", class_spec)
    return 2 * math.sqrt(2 * spec.n_columns) / noise_scale if noise_scale else math.inf


def _forecast_teachers(spec: ProblemSpec, clustering: str) -> Iterator[RecipeForecast]:
    """Yield the forecasts of teacher ensembles, by worst-case accounting and with the recipes' number of teachers.

    For a vote to stand out from its noise, as many teachers must agree as rows of a cluster. `purity` stands for the
    share of teachers that are correct. Stable votes need a distance, which is half of the winner's lead.
    """
    phases_of = {
        "pate-fm": (clustering, "fixmatch"),  # teachers are heads on the rows for clusters, which take no time
        "pate-fm-ssl": (clustering, "fixmatch", "fixmatch"),
        "pate-fm-augdescent": (clustering, "fixmatch", "augdescent"),
        "pate-fm-denoise": (clustering, "fixmatch", "fixmatch"),
        "pate": (clustering, "gan"),
        "pate-coteaching": (clustering, "gan", "gan"),
        "pate-plus": (clustering, "gan", "gan"),
        "pate-plus-plus": (clustering, "gan", "gan", "gan", "gan"),
        "stable-vote": (clustering, "fixmatch"),
    }
    if not spec.delta:
        for recipe in phases_of:
            yield RecipeForecast(recipe, (), math.inf, reason="needs delta above 0")
        return
    n_answers = min(ANSWERS_PER_CLASS * spec.n_classes, spec.n_rows)
    n_queries, limit = min(QUERIES_PER_ANSWER * n_answers, spec.n_rows), max_teachers(spec.n_rows, spec.n_classes)
    confident = calibrate_confident_votes(spec.epsilon, spec.delta, n_queries, n_answers)
    stable = calibrate_stable_votes(spec.epsilon, spec.delta, n_queries)
    noise_per_lead = bisect_largest(
        lambda noise_per_lead: (
            noisy_argmax_accuracy("gaussian", 1000.0, 1000 / noise_per_lead, spec.n_classes) >= RELIABLE_VOTE
        ),
        1e-3,
        1e3,
    )
    lead = spec.purity - spec.other_class_share
    n_teachers_of = {  # the number of teachers, and the number that is required
        "ConfidentGNMax": (count_confident_teachers(confident, limit), confident.sigma2 / noise_per_lead / lead),
        "StableVote": (count_stable_teachers(stable, limit), min_unanimous_teachers(stable) / lead),
    }
    for recipe, phases in phases_of.items():
        votes = "StableVote" if recipe == "stable-vote" else "ConfidentGNMax"
        n_teachers, n_needed = n_teachers_of[votes]
        use = Use(votes, spec.epsilon, spec.delta, min(1.0, n_answers / spec.n_rows))
        shortage = f"needs {math.ceil(n_needed):,} teachers by worst-case accounting, too many for these rows"
        reason = shortage if limit < n_needed else ""
        yield RecipeForecast(recipe, (use,), _estimate_minutes(spec, *phases), n_teachers=n_teachers, reason=reason)


def _vote_label_accuracy(spec: ProblemSpec, vote_accuracy: float) -> float:
    """Return the accuracy of cluster labels, whose vote is correct with probability `vote_accuracy`."""
    return vote_accuracy * spec.purity + (1 - vote_accuracy) * spec.other_class_share


def _estimate_minutes(spec: ProblemSpec, *phases: str) -> float:
    return sum(_PASSES[phase] for phase in phases) * spec.n_rows / _ROWS_PER_SECOND[spec.features, spec.device] / 60


def advise(
    n_rows: int,
    n_classes: int,
    epsilon: float,
    delta: float = 0.0,
    features: FeatureKindName = "table",
    device: Device = "cpu",
    n_clusters: int | None = None,
    purity: float | None = None,
    positives: float | None = None,
) -> Advice:
    """Forecast each recipe, and recommend one.

    Args:
        n_rows: The number of labeled rows.
        n_classes: The number of classes.
        epsilon: The epsilon of a label.
        delta: The delta of a label.
        features: The type of the features.
        device: The device of the training.
        n_clusters: The number of clusters; by default that of the classes, as in the papers.
        purity: The share of rows in the largest class of their cluster; by default half way from chance to 1.
        positives: The share of the rarer of two classes, if it is known without inspecting the labels.

    Returns:
        The forecasts and the recommendation.

    Raises:
        InputError: A number is out of range, or there are no such features or device.
    """
    for name, value, minimum in (
        ("n_rows", n_rows, 1),
        ("n_classes", n_classes, 2),
        ("n_clusters", 1 if n_clusters is None else n_clusters, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not minimum <= value <= 10**12:
            raise InputError(f"{name} must be a whole number from {minimum}, not {value!r}.", parameter=name)
    if features not in get_args(FeatureKindName):
        raise InputError(f"features must be one of {', '.join(get_args(FeatureKindName))}.", parameter="features")
    if device not in get_args(Device):
        raise InputError("device must be cpu or cuda.", parameter="device")
    if purity is not None and not (isinstance(purity, int | float) and 1 / n_classes < purity <= 1):
        raise InputError(
            f"purity must be above {1 / n_classes:.3g}, which is chance with {n_classes} classes, and at most 1.",
            parameter="purity",
        )
    if positives is not None and not (n_classes == 2 and isinstance(positives, int | float) and 0 < positives <= 0.5):
        raise InputError(
            "positives is the share of the rarer of two classes: above 0 and at most 0.5, with 2 classes.",
            parameter="positives",
        )
    spec = ProblemSpec(
        int(n_rows),
        int(n_classes),
        check_epsilon(epsilon),
        check_delta(delta),
        features,
        device,
        int(n_clusters or n_classes),
        (1 + 1 / n_classes) / 2 if purity is None else float(purity),
        None if positives is None else float(positives),
    )
    nats = {
        "RandomizedResponse": response_information(spec.epsilon, spec.n_classes),
        "OneHotLaplace": laplace_information(spec.epsilon, spec.n_classes),
    }
    if spec.delta:
        nats["OneHotGaussian"] = gaussian_information(noise_deviation(spec.epsilon, spec.delta), spec.n_classes)
    forecasts = {forecast.recipe: forecast for forecast in _forecast_recipes(spec, nats)}
    choices = list(applicable_recipes(spec, forecasts))
    recommended, reason = next(
        (choice for choice in choices if forecasts[choice[0]].minutes <= _MAX_MINUTES), choices[0]
    )
    if forecasts[recommended].minutes > _MAX_MINUTES:
        reason += f" It takes {forecasts[recommended].duration} on this device."
        if features == "images":
            reason += (
                " Features of a public encoder, computed once, are quick to learn from: plan with features embeddings."
            )
    reason += "" if spec.positives is None else explain_rare_accuracy(spec)
    ranked = dict(sorted(nats.items(), key=lambda item: -item[1]))
    return Advice(spec, tuple(forecasts.values()), recommended, reason, ranked, max_clusters(spec))
