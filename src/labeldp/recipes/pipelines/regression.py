"""Numbers: noisy bins and learning from their evidence, noisy sums for a line, and the plain noise to compare with."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_regressor
from sklearn.linear_model import PoissonRegressor
from sklearn.linear_model import Ridge as RidgeRegressor
from sklearn.utils.validation import has_fit_parameter

from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.core.lazy import require_torch
from labeldp.data.label_bins import Floats, LossName
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.density import check_loss, label_grid
from labeldp.learn.predictor import Predictor
from labeldp.learn.regression import Regression, TargetPrior
from labeldp.learn.ridge import Ridge
from labeldp.learn.sklearn_learner import StandardizedFeatures
from labeldp.privacy.mechanisms.linear import GroupHistogram
from labeldp.privacy.mechanisms.numeric_responses import MAX_RANGE_VALUES, DiscreteLaplace, RROnBins
from labeldp.privacy.mechanisms.numeric_sums import NumberSums
from labeldp.recipes.budget_split import split_epsilon
from labeldp.recipes.candidates import Candidate, fit_candidates
from labeldp.recipes.models import find_model
from labeldp.recipes.pipelines.additive_regression import binned_numbers, suits_binned_numbers
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task, default_training
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.moments import NoisySums

_MEAN_PRECISION = 0.02  # of the range: how well the mean of all labels should be known beforehand
_MIN_PRIOR_FRACTION, _MAX_PRIOR_FRACTION = 0.1, 0.5  # of epsilon, for what is known beforehand
_MIN_COUNT_SNR = 10.0  # labels a value, over the noise, from which a histogram says more than mean and spread
_LINEAR_ROUNDS, _FLEXIBLE_ROUNDS = (
    50,
    12,
)  # a flexible model learns its own guesses by heart if they come back to it often
_RELATIVE_VARIANCE = (
    1 / 96
)  # of the squared range: what signal and scatter are taken for each, as labels rarely fill their range
_MAX_SIGNAL_LOSS = 0.05  # of the signal, by a forecast that flatters: what a line may lose for others to be worth a try
_MIN_SIGNAL_TO_CHOOSE = 2_000  # rows times epsilon from which a private choice can tell models apart


@recipe(
    "laplace",
    "plain noise on each number, then regression as if there were none: the baseline",
    labels="numbers",
    networks="never",
)
def laplace(task: Task, loss: LossName = "squared") -> Steps:
    """Noise as wide as the range, cut at its ends; nothing is made of what is known about it."""
    check_loss(loss, task.space)
    model = _resolve_regressor(task, loss)
    if not hasattr(model, "fit"):
        raise InputError("laplace trains regressors of scikit-learn: choose ridge or trees, or the recipe bins.")
    learner = replace(Regression(model, loss), standardized=StandardizedFeatures.of(task.features))
    noisy = yield Request(DiscreteLaplace(task.epsilon))
    return learner.fit_values(task.features, noisy, noisy.values())


@recipe(
    "bins",
    "mean and spread of all numbers, randomized response over the best bins, then learning from evidence",
    labels="numbers",
)
def bins(task: Task, loss: LossName = "squared", epsilon_fraction: float | None = None) -> Steps:
    """`share` of epsilon goes to what is known beforehand; by default what the mean of all labels needs."""
    if epsilon_fraction is not None and not 0 < epsilon_fraction < 1:
        raise InputError("bins needs a share of epsilon that is above 0 and below 1.")
    fit = next(iter(make_number_learners(task, loss).values()))
    prior_epsilon, labels_epsilon = split_epsilon(task.epsilon, epsilon_fraction or prior_epsilon_fraction(task))
    summary = yield Request(make_prior_query(task, prior_epsilon))
    label_prior = LabelPrior.of(summary)
    noisy = yield Request(RROnBins(labels_epsilon, label_prior.prior, loss), None, [summary])
    return fit(noisy, label_prior)


@recipe(
    "sums",
    "noisy sums of the features times the numbers, then ridge regression with the penalty of the noise",
    labels="numbers",
    takes_model=False,
)
def sums(task: Task) -> Steps:
    """One query for the whole budget; the model is a line, and its loss is the squared one."""
    normalizer = _fit_normalizer(task)
    noisy = yield Request(
        NumberSums(normalizer(task.encoded_features), task.epsilon, task.delta, n_values=len(task.space))
    )
    return task.with_encoder(Ridge(normalizer).fit(task.encoded_features, noisy))


def auto_numbers(task: Task, loss: LossName = "squared") -> Steps:
    """Sums of bins for an additive model of a table, or sums for a line with further models and a private choice.

    Of few rows, or where evidence would hold little of even a line, one model is trained: from sums or from bins,
    whichever public facts promise less error.
    """
    if loss == "squared" and suits_binned_numbers(task):
        return (yield from binned_numbers(task))
    if has_several_number_candidates(task, loss):
        prior_epsilon, labels_epsilon = split_epsilon(task.epsilon, prior_epsilon_fraction(task))
        normalizer, learners = _fit_normalizer(task), make_number_learners(task, loss)
        moments = yield Request(
            NumberSums(normalizer(task.encoded_features), prior_epsilon, task.delta, n_values=len(task.space))
        )
        linear_model = task.with_encoder(Ridge(normalizer).fit(task.encoded_features, moments))
        label_prior = LabelPrior.of(moments)
        noisy = yield Request(RROnBins(labels_epsilon, label_prior.prior, loss), None, [moments])
        candidates = [Candidate(name, partial(fit, noisy, label_prior)) for name, fit in learners.items()]
        return fit_candidates(task, candidates, [linear_model])
    if loss == "squared" and task.model == "auto" and (_exceeds_bin_range(task) or sums_are_better(task)):
        return (yield from sums(task))
    return (yield from bins(task, loss))


def has_several_number_candidates(task: Task, loss: LossName = "squared") -> bool:
    """Whether `auto_numbers` will give models to choose from."""
    task = task.full_task
    if len(task.features.shape) != 1 or _exceeds_bin_range(task) or task.model != "auto":
        return False
    if loss == "squared" and suits_binned_numbers(task):
        return False
    n_rows = int(task.row_mask.sum())
    return n_rows * task.label_epsilon >= _MIN_SIGNAL_TO_CHOOSE and bool(
        _bins_error(task, _normalize_rows(task)) < _MAX_SIGNAL_LOSS * _RELATIVE_VARIANCE * n_rows
    )


def _exceeds_bin_range(task: Task) -> bool:
    """Whether the range has more values than the search for bins takes."""
    return len(task.space) > MAX_RANGE_VALUES


# What to learn with.

Fit = Callable[[Release, "LabelPrior"], Predictor]


def make_number_learners(task: Task, loss: LossName) -> dict[str, Fit]:
    """Return what learns numbers from evidence, for a task's model; with "auto", flexible ones come after a line.

    What they need of the features alone is ready.
    """
    check_loss(loss, task.space)
    if _exceeds_bin_range(task):
        raise InputError(
            f"The range has {len(task.space):,} values and the search for bins takes {MAX_RANGE_VALUES:,}: widen the "
            "step, or take the recipe sums."
        )
    model = _resolve_regressor(task, loss)
    if not hasattr(model, "fit"):
        require_torch("Training a network")
        return {"a network": partial(_fit_network, task, loss, model)}
    if not has_fit_parameter(model, "sample_weight"):
        raise InputError(f"{type(model).__name__} takes no sample weights: choose ridge, trees or another that does.")
    if task.encoder is not None:
        raise InputError(f"{type(model).__name__} cannot begin from an encoder: give its embeddings as features.")
    fits: dict[str, Fit] = {type(model).__name__: partial(_fit_regressor, task, _make_regression(task, loss, model))}
    if task.model == "auto":
        if task.features.kind == "table":
            trees = find_model("trees", task.seed, is_numeric=True)
            fits["boosted trees"] = partial(_fit_regressor, task, _make_regression(task, loss, trees))
        if task.trains_networks:
            fits["a network"] = partial(_fit_network, task, loss, "mlp")
    return fits


def _resolve_regressor(task: Task, loss: LossName) -> Any:
    n_axes = len(task.features.shape)
    model = find_model(task.model, task.seed, n_axes, is_numeric=True)
    if model == "ridge" or (model == "auto" and n_axes == 1):
        # Features are standardised: a penalty of one for each column says that signal and scatter are about alike.
        n_columns = float(np.prod(task.features.shape))
        if loss == "poisson":
            return PoissonRegressor(alpha=n_columns / max(1, int(task.row_mask.sum())), max_iter=300)
        return RidgeRegressor(alpha=n_columns)
    if hasattr(model, "fit") and not is_regressor(model):
        raise InputError(f"{type(model).__name__} is no regressor: choose one of scikit-learn, ridge or trees.")
    return model


def _make_regression(task: Task, loss: LossName, model: Any) -> Regression:
    is_linear = "linear_model" in type(model).__module__
    return Regression(model, loss, _LINEAR_ROUNDS if is_linear else _FLEXIBLE_ROUNDS).prepare(
        task.features, task.row_mask
    )


def _fit_regressor(task: Task, learner: Regression, noisy: Release, label_prior: "LabelPrior") -> Predictor:
    return replace(learner, target_prior=label_prior.anchor(int(task.row_mask.sum()))).fit(task.features, noisy)


def _fit_network(task: Task, loss: LossName, backbone: Any, noisy: Release, label_prior: "LabelPrior") -> Predictor:
    from labeldp.learn.backbones import Network, build
    from labeldp.learn.base import replace_head
    from labeldp.learn.bayes import Bayes
    from labeldp.learn.encoded import split_encoder
    from labeldp.learn.model import Model

    grid = label_grid(task.space)
    head_options = {
        "low": grid[0],
        "high": grid[-1],
        "loss": loss,
        "center": label_prior.center,
        "deviation": label_prior.deviation,
    }
    start = None if task.encoder is None else split_encoder(task.encoder)[0]
    if start is not None:
        if not isinstance(start.network, Network):
            raise InputError("Numbers need an encoder of this library: train one with labeldp.representation.")
        network = replace_head(copy.deepcopy(start.network), len(grid), head_options)
        start = Model(network, task.space, start.provenance)
    if isinstance(backbone, str):
        default = "mf" if len(task.features.shape) == 2 else "resnet18"
        backbone = default if backbone == "auto" else backbone
        backbone = partial(build, backbone, head_config=head_options)
    return Bayes(backbone, task.training or default_training(task)).fit(task.features, noisy, start)


# What is known beforehand.


@dataclass(frozen=True)
class LabelPrior:
    """The distribution of all labels, as far as a first release tells it, and how far off its mean may be."""

    prior: Floats
    center: float
    deviation: float
    error: float

    @classmethod
    def of(cls, release: Release) -> "LabelPrior":
        """Read a histogram, or mean and spread."""
        grid = label_grid(release.space)
        midpoint, width = (grid[0] + grid[-1]) / 2, grid[-1] - grid[0]
        if isinstance(release, NoisyCounts):
            # Noise of both signs averages out of these sums; cut at zero, it would look like spread.
            frequencies = release.counts[0] / max(1, int(release.sizes[0]))
            mean_offset, mean_square = (
                float(frequencies @ (grid - midpoint)),
                float(frequencies @ (grid - midpoint) ** 2),
            )
            error = release.scale * 2**0.5 * float(np.linalg.norm(grid - midpoint)) / max(1, int(release.sizes[0]))
        elif isinstance(release, NoisySums):
            mean_offset, mean_square = release.mean, release.mean_square
            error = release.noise_deviation / max(1, release.n_labels)
        else:
            raise TypeError("Neither a histogram nor sums.")
        center = float(np.clip(midpoint + mean_offset, grid[0], grid[-1]))
        deviation = float(np.sqrt(np.clip(mean_square - mean_offset**2, (width / 20) ** 2, width**2 / 12)))
        if isinstance(release, NoisyCounts):
            prior = np.maximum(release.counts[0], 0.0) + release.scale  # a value that noise hides may well occur
        else:
            prior = np.exp(-((grid - center) ** 2) / (2 * (deviation**2 + error**2)))
        return cls(prior / prior.sum(), center, deviation, error)

    def anchor(self, n_rows: int) -> TargetPrior:
        """Return the average row: worth as many rows as know the mean as well, but never many against all."""
        equivalent_rows = (self.deviation / max(self.error, 1e-9)) ** 2
        return TargetPrior(self.center, self.deviation, min(equivalent_rows, n_rows / 10))


def make_prior_query(task: Task, epsilon: float) -> Any:
    """Return what tells the distribution of all labels: a histogram where its counts stand out, else two numbers."""
    n_rows, n_values = int(task.full_task.row_mask.sum()), len(task.space)
    if n_rows * epsilon / task.full_task.labels_per_user / n_values >= _MIN_COUNT_SNR:
        return GroupHistogram(np.zeros(len(task.row_mask), np.int64), epsilon)
    return NumberSums(np.ones((len(task.row_mask), 1)), epsilon, n_values=n_values)


def prior_epsilon_fraction(task: Task) -> float:
    """Return the share of epsilon that brings the mean of all labels as near as it should be known.

    The sum of n numbers has noise of deviation sqrt(2) times the range over epsilon.
    """
    task = task.full_task
    required_epsilon = 2**0.5 / (_MEAN_PRECISION * max(1, int(task.row_mask.sum())))
    return float(np.clip(required_epsilon / task.label_epsilon, _MIN_PRIOR_FRACTION, _MAX_PRIOR_FRACTION))


# Sums or bins?


def _fit_normalizer(task: Task) -> RowNormalizer:
    is_dense = task.encoded_features.kind != "table"
    return RowNormalizer.fit(task.encoded_features, n_columns=32 if is_dense and not task.delta else 256, clip=True)


def sums_are_better(task: Task) -> bool:
    """Whether a line from noisy sums promises less error than one from the evidence of bins, by public facts.

    Noise adds to every sum, however many rows there are; evidence makes every row worth less, but the mean of all
    labels is known beside it.
    """
    task = task.full_task
    if len(task.features.shape) > 1 and task.encoder is None:  # pixels make no line, and ids have no sums
        return False
    normalized = _normalize_rows(task)
    query = NumberSums(normalized, task.label_epsilon, task.delta, n_values=len(task.space))
    noise = (query.sigma / query.grid_scale / (2 * (len(task.space) - 1))) ** 2  # the range being 1 wide
    return _linear_error(normalized, 1.0, noise) < _bins_error(task, normalized)


def _normalize_rows(task: Task) -> Floats:
    return _fit_normalizer(task)(task.encoded_features)[task.row_mask].astype(np.float64)


def _bins_error(task: Task, normalized: Floats) -> float:
    """Return the squared error, summed over rows, that a line from the evidence of bins is expected to have."""
    fraction = prior_epsilon_fraction(task)
    efficiency = bins_efficiency(float(f"{(1 - fraction) * task.label_epsilon:.2g}"))
    centered = normalized[:, :-1] - normalized[:, :-1].mean(axis=0)
    mean_error = 1 / (
        (fraction * task.label_epsilon * len(normalized)) ** 2 / 2 + len(normalized) * efficiency / _RELATIVE_VARIANCE
    )
    return _linear_error(centered, efficiency, 0.0) + len(normalized) * mean_error


def _linear_error(normalized: Floats, efficiency: float, noise: float) -> float:
    """Return the squared error, summed over rows, that a line fitted as `NoisySums` does it is expected to have."""
    eigenvalues = np.maximum(np.linalg.eigvalsh(normalized.T @ normalized), 0)
    spread = _RELATIVE_VARIANCE * len(normalized) / max(float(eigenvalues.sum()), 1e-12)
    relative_error = spread * (
        1
        - spread
        * eigenvalues**2
        / (spread * eigenvalues**2 + eigenvalues * _RELATIVE_VARIANCE / efficiency + noise + 1e-300)
    )
    return float(eigenvalues @ relative_error)


@cache
def bins_efficiency(epsilon: float) -> float:
    """Return how much of a clean label's worth its evidence keeps: the share of variance that a guess from it takes."""
    space = LabelSpace.range(0, 100, 1)
    uniform: NDArray[np.float64] = np.full(101, 1 / 101)
    label_variance = float(np.var(np.arange(101)))
    return max(1 - RROnBins(epsilon, uniform).expected_loss(space) / label_variance, 1e-9)
