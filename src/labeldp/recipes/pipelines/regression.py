"""Regression: randomized response over bins, noisy sums for a linear model, and Laplace noise as the baseline."""

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

# Required error of the mean of all labels in the prior of bins, as a fraction of the range.
_MEAN_PRECISION = 0.02
# Smallest and largest fraction of epsilon for the prior.
_MIN_PRIOR_FRACTION, _MAX_PRIOR_FRACTION = 0.1, 0.5
# Labels per value, in units of the noise, from which a histogram is more informative than mean and variance.
_MIN_COUNT_SNR = 10.0
# Rounds of fitting linear and flexible models. A flexible model memorizes its own predictions in many rounds.
_LINEAR_ROUNDS = 50
_FLEXIBLE_ROUNDS = 12
# Assumed variance of both signal and residuals, as a fraction of the squared range, which labels rarely fill.
_RELATIVE_VARIANCE = 1 / 96
# Expected loss of signal of a linear model up to which further candidates are trained. The estimate is optimistic.
_MAX_SIGNAL_LOSS = 0.05
# Rows times epsilon from which a private selection can distinguish models.
_MIN_SIGNAL_TO_CHOOSE = 2_000


@recipe(
    "laplace",
    "plain noise on each number, then regression as if there were none: the baseline",
    labels="numbers",
    networks="never",
)
def laplace(task: Task, loss: LossName = "squared") -> Steps:
    """Release each number with Laplace noise, clipped to the range, then train a regressor that ignores the noise.

    Args:
        task: The task.
        loss: The loss of the regressor.

    Returns:
        A model.

    Raises:
        InputError: The loss does not suit the labels, or the model is no regressor of scikit-learn.
    """
    check_loss(loss, task.space)
    model = _resolve_regressor(task, loss)
    if not hasattr(model, "fit"):
        raise InputError("laplace trains regressors of scikit-learn: choose ridge or trees, or the recipe bins.")
    learner = replace(Regression(model, loss), standardized=StandardizedFeatures.of(task.features))
    noisy = yield Request(DiscreteLaplace(task.epsilon))
    return learner.fit_values(task.features, noisy, noisy.values())


@recipe(
    "bins",
    "mean and variance of all numbers, randomized response over the best bins, then learning from evidence",
    labels="numbers",
)
def bins(task: Task, loss: LossName = "squared", epsilon_fraction: float | None = None) -> Steps:
    """Release a summary of all numbers, then randomized response over bins that are optimal for it (RR-on-bins).

    Args:
        task: The task.
        loss: The loss that bins and model minimize.
        epsilon_fraction: The fraction of epsilon for the summary; by default what the mean of all labels needs.

    Returns:
        A model of the responses.

    Raises:
        InputError: The fraction is out of range, or loss, range or model do not suit the recipe.
    """
    if epsilon_fraction is not None and not 0 < epsilon_fraction < 1:
        raise InputError("bins needs an epsilon_fraction that is above 0 and below 1.")
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
    """Release sums of the features times the numbers with the whole budget, then fit ridge regression."""
    normalizer = _fit_normalizer(task)
    noisy = yield Request(
        NumberSums(normalizer(task.encoded_features), task.epsilon, task.delta, n_values=len(task.space))
    )
    return task.with_encoder(Ridge(normalizer).fit(task.encoded_features, noisy))


def auto_numbers(task: Task, loss: LossName = "squared") -> Steps:
    """Choose a pipeline for numbers by public facts.

    - Tables with enough rows: `binned_numbers`, an additive model of sums of bins.
    - Many rows: a linear model of noisy sums, further models of randomized response, and a private selection.
    - Otherwise: one model from `sums` or from `bins`, whichever has the smaller expected error.

    Args:
        task: The task.
        loss: The loss of the models.

    Returns:
        One model, or several to select from.
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
    """Whether `auto_numbers` returns several models to select from."""
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
    """Whether the range has more values than the search for bins allows."""
    return len(task.space) > MAX_RANGE_VALUES


Fit = Callable[[Release, "LabelPrior"], Predictor]


def make_number_learners(task: Task, loss: LossName) -> dict[str, Fit]:
    """Return functions that learn numbers from evidence, by the name of the model.

    For the model "auto", flexible models follow a linear one. Computations on the features alone are done already.

    Args:
        task: The task.
        loss: The loss of the models.

    Returns:
        The functions.

    Raises:
        InputError: The range has too many values, or the model does not suit the task.
        MissingExtra: A network is to be trained, and torch is not installed.
    """
    check_loss(loss, task.space)
    if _exceeds_bin_range(task):
        raise InputError(
            f"The range has {len(task.space):,} values and the search for bins takes {MAX_RANGE_VALUES:,}: widen the "
            "step, or take the recipe sums.",
            parameter="label_range",
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
        # Features are standardized: a penalty of one for each column means that signal and residuals are about equal.
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


@dataclass(frozen=True)
class LabelPrior:
    """The distribution of all labels by a first release.

    Attributes:
        prior: The probability of each value of the range.
        center: The mean of the labels.
        deviation: The standard deviation of the labels.
        error: The standard error of the mean.
    """

    prior: Floats
    center: float
    deviation: float
    error: float

    @classmethod
    def of(cls, release: Release) -> "LabelPrior":
        """Estimate the distribution from a histogram, or from sums of the labels and their squares."""
        grid = label_grid(release.space)
        midpoint, width = (grid[0] + grid[-1]) / 2, grid[-1] - grid[0]
        if isinstance(release, NoisyCounts):
            # Noise of both signs averages out in these sums. Clipping counts at zero would add to the variance.
            frequencies = release.counts[0] / max(1, int(release.sizes[0]))
            mean_offset = float(frequencies @ (grid - midpoint))
            mean_square = float(frequencies @ (grid - midpoint) ** 2)
            error = release.scale * 2**0.5 * float(np.linalg.norm(grid - midpoint)) / max(1, int(release.sizes[0]))
        elif isinstance(release, NoisySums):
            mean_offset, mean_square = release.mean, release.mean_square
            error = release.noise_deviation / max(1, release.n_labels)
        else:
            raise TypeError("Neither a histogram nor sums.")
        center = float(np.clip(midpoint + mean_offset, grid[0], grid[-1]))
        deviation = float(np.sqrt(np.clip(mean_square - mean_offset**2, (width / 20) ** 2, width**2 / 12)))
        if isinstance(release, NoisyCounts):
            prior = np.maximum(release.counts[0], 0.0) + release.scale  # values with small counts may occur, too
        else:
            prior = np.exp(-((grid - center) ** 2) / (2 * (deviation**2 + error**2)))
        return cls(prior / prior.sum(), center, deviation, error)

    def anchor(self, n_rows: int) -> TargetPrior:
        """Return the prior of targets, weighted as the rows that determine the mean equally well, at most a tenth."""
        equivalent_rows = (self.deviation / max(self.error, 1e-9)) ** 2
        return TargetPrior(self.center, self.deviation, min(equivalent_rows, n_rows / 10))


def make_prior_query(task: Task, epsilon: float) -> Any:
    """Return the query for the distribution of all labels: a histogram if its counts exceed the noise, else sums."""
    n_rows, n_values = int(task.full_task.row_mask.sum()), len(task.space)
    if n_rows * epsilon / task.full_task.labels_per_user / n_values >= _MIN_COUNT_SNR:
        return GroupHistogram(np.zeros(len(task.row_mask), np.int64), epsilon)
    return NumberSums(np.ones((len(task.row_mask), 1)), epsilon, n_values=n_values)


def prior_epsilon_fraction(task: Task) -> float:
    """Return the fraction of epsilon with which the mean of all labels has the required precision.

    The sum of n numbers has noise of deviation sqrt(2) times the range over epsilon.
    """
    task = task.full_task
    required_epsilon = 2**0.5 / (_MEAN_PRECISION * max(1, int(task.row_mask.sum())))
    return float(np.clip(required_epsilon / task.label_epsilon, _MIN_PRIOR_FRACTION, _MAX_PRIOR_FRACTION))


def _fit_normalizer(task: Task) -> RowNormalizer:
    is_dense = task.encoded_features.kind != "table"
    return RowNormalizer.fit(task.encoded_features, n_columns=32 if is_dense and not task.delta else 256, clip=True)


def sums_are_better(task: Task) -> bool:
    """Whether a linear model of noisy sums has a smaller expected error than one of responses over bins.

    The decision uses public facts alone. The noise of sums is independent of the number of rows. The noise of responses
    reduces the information of every row, but they come with the mean of all labels.
    """
    task = task.full_task
    if len(task.features.shape) > 1 and task.encoder is None:  # linear models do not suit pixels, nor ids
        return False
    normalized = _normalize_rows(task)
    query = NumberSums(normalized, task.label_epsilon, task.delta, n_values=len(task.space))
    noise = (query.sigma / query.grid_scale / (2 * (len(task.space) - 1))) ** 2  # in units of the range
    return _linear_error(normalized, 1.0, noise) < _bins_error(task, normalized)


def _normalize_rows(task: Task) -> Floats:
    return _fit_normalizer(task)(task.encoded_features)[task.row_mask].astype(np.float64)


def _bins_error(task: Task, normalized: Floats) -> float:
    """Return the expected squared error, summed over rows, of a linear model of responses over bins."""
    fraction = prior_epsilon_fraction(task)
    efficiency = bins_efficiency(float(f"{(1 - fraction) * task.label_epsilon:.2g}"))
    centered = normalized[:, :-1] - normalized[:, :-1].mean(axis=0)
    mean_error = 1 / (
        (fraction * task.label_epsilon * len(normalized)) ** 2 / 2 + len(normalized) * efficiency / _RELATIVE_VARIANCE
    )
    return _linear_error(centered, efficiency, 0.0) + len(normalized) * mean_error


def _linear_error(normalized: Floats, efficiency: float, noise: float) -> float:
    """Return the expected squared error, summed over rows, of a linear model fitted as in `NoisySums`."""
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
    """Return the share of a label's variance that its response over bins explains."""
    space = LabelSpace.range(0, 100, 1)
    uniform: NDArray[np.float64] = np.full(101, 1 / 101)
    label_variance = float(np.var(np.arange(101)))
    return max(1 - RROnBins(epsilon, uniform).expected_loss(space) / label_variance, 1e-9)
