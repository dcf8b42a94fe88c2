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
from labeldp.data.row_normalizer import Lift
from labeldp.learn.classical import Standardised
from labeldp.learn.density import check_loss, grid_of
from labeldp.learn.predictor import Predictor
from labeldp.learn.regression import Anchor, Regression
from labeldp.learn.ridge import Ridge
from labeldp.privacy.mechanisms.binning import LARGEST_RANGE, DiscreteLaplace, RROnBins
from labeldp.privacy.mechanisms.linear import GroupHistogram
from labeldp.privacy.mechanisms.sums import NumberQuery
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.budget_split import split_epsilon
from labeldp.recipes.candidates import Candidate, fit_all
from labeldp.recipes.models import find_model
from labeldp.recipes.pipelines.additive_numbers import are_binned_numbers, binned_numbers
from labeldp.recipes.task import Task, default_training
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.moments import NoisySums

_SURE = 0.02  # of the range: how well the mean of all labels should be known beforehand
_LEAST, _MOST = 0.1, 0.5  # of epsilon, for what is known beforehand
_CLEAR = 10.0  # labels a value, over the noise, from which a histogram says more than mean and spread
_LINEAR_ROUNDS, _ROUNDS = 50, 12  # a flexible model learns its own guesses by heart if they come back to it often
_PART = 1 / 96  # of the squared range: what signal and scatter are taken for each, as labels rarely fill their range
_MOST_LOST = 0.05  # of the signal, by a forecast that flatters: what a line may lose for others to be worth a try
_SEVERAL_FROM = 2_000  # rows times epsilon from which a private choice can tell models apart


@recipe(
    "laplace",
    "plain noise on each number, then regression as if there were none: the baseline",
    labels="numbers",
    networks="never",
)
def laplace(task: Task, loss: LossName = "squared") -> Steps:
    """Noise as wide as the range, cut at its ends; nothing is made of what is known about it."""
    check_loss(loss, task.space)
    model = _model(task, loss)
    if not hasattr(model, "fit"):
        raise InputError("laplace trains regressors of scikit-learn: choose ridge or trees, or the recipe bins.")
    learner = replace(Regression(model, loss), seen=Standardised.of(task.features))
    noisy = yield Ask(DiscreteLaplace(task.epsilon))
    return learner.fit_values(task.features, noisy, noisy.values())


@recipe(
    "bins",
    "mean and spread of all numbers, randomized response over the best bins, then learning from evidence",
    labels="numbers",
)
def bins(task: Task, loss: LossName = "squared", share: float | None = None) -> Steps:
    """`share` of epsilon goes to what is known beforehand; by default what the mean of all labels needs."""
    if share is not None and not 0 < share < 1:
        raise InputError("bins needs a share of epsilon that is above 0 and below 1.")
    fit = next(iter(learners_for(task, loss).values()))
    first, second = split_epsilon(task.epsilon, share or share_beforehand(task))
    told = yield Ask(beforehand_query(task, first))
    known = Beforehand.of(told)
    noisy = yield Ask(RROnBins(second, known.prior, loss), None, [told])
    return fit(noisy, known)


@recipe(
    "sums",
    "noisy sums of the features times the numbers, then ridge regression with the penalty of the noise",
    labels="numbers",
    takes_model=False,
)
def sums(task: Task) -> Steps:
    """One query for the whole budget; the model is a line, and its loss is the squared one."""
    lift = _lift(task)
    noisy = yield Ask(NumberQuery(lift(task.points), task.epsilon, task.delta, values=len(task.space)))
    return task.on_points(Ridge(lift).fit(task.points, noisy))


def auto_numbers(task: Task, loss: LossName = "squared") -> Steps:
    """Sums of bins for an additive model of a table, or sums for a line with further models and a private choice.

    Of few rows, or where evidence would hold little of even a line, one model is trained: from sums or from bins,
    whichever public facts promise less error.
    """
    if loss == "squared" and are_binned_numbers(task):
        return (yield from binned_numbers(task))
    if several_numbers(task, loss):
        first, second = split_epsilon(task.epsilon, share_beforehand(task))
        lift, learners = _lift(task), learners_for(task, loss)
        told = yield Ask(NumberQuery(lift(task.points), first, task.delta, values=len(task.space)))
        line = task.on_points(Ridge(lift).fit(task.points, told))
        known = Beforehand.of(told)
        noisy = yield Ask(RROnBins(second, known.prior, loss), None, [told])
        candidates = [Candidate(name, partial(fit, noisy, known)) for name, fit in learners.items()]
        return fit_all(task, candidates, [line])
    if loss == "squared" and task.model == "auto" and (_is_fine(task) or sums_are_better(task)):
        return (yield from sums(task))
    return (yield from bins(task, loss))


def several_numbers(task: Task, loss: LossName = "squared") -> bool:
    """Whether `auto_numbers` will give models to choose from."""
    task = task.whole
    if len(task.features.shape) != 1 or _is_fine(task) or task.model != "auto":
        return False
    if loss == "squared" and are_binned_numbers(task):
        return False
    rows = int(task.rows.sum())
    return rows * task.label_epsilon >= _SEVERAL_FROM and bool(
        _by_bins(task, _lifted(task)) < _MOST_LOST * _PART * rows
    )


def _is_fine(task: Task) -> bool:
    """Whether the range has more values than the search for bins takes."""
    return len(task.space) > LARGEST_RANGE


# What to learn with.

Fit = Callable[[Release, "Beforehand"], Predictor]


def learners_for(task: Task, loss: LossName) -> dict[str, Fit]:
    """Return what learns numbers from evidence, for a task's model; with "auto", flexible ones come after a line.

    What they need of the features alone is ready.
    """
    check_loss(loss, task.space)
    if _is_fine(task):
        raise InputError(
            f"The range has {len(task.space):,} values and the search for bins takes {LARGEST_RANGE:,}: widen the "
            "step, or take the recipe sums."
        )
    model = _model(task, loss)
    if not hasattr(model, "fit"):
        require_torch("Training a network")
        return {"a network": partial(_fit_network, task, loss, model)}
    if not has_fit_parameter(model, "sample_weight"):
        raise InputError(f"{type(model).__name__} takes no sample weights: choose ridge, trees or another that does.")
    if task.encoder is not None:
        raise InputError(f"{type(model).__name__} cannot begin from an encoder: give its embeddings as features.")
    fits: dict[str, Fit] = {type(model).__name__: partial(_fit_regressor, task, _regression(task, loss, model))}
    if task.model == "auto":
        if task.features.kind == "table":
            trees = find_model("trees", task.seed, numbers=True)
            fits["boosted trees"] = partial(_fit_regressor, task, _regression(task, loss, trees))
        if task.trains_networks:
            fits["a network"] = partial(_fit_network, task, loss, "mlp")
    return fits


def _model(task: Task, loss: LossName) -> Any:
    axes = len(task.features.shape)
    model = find_model(task.model, task.seed, axes, numbers=True)
    if model == "ridge" or (model == "auto" and axes == 1):
        # Features are standardised: a penalty of one for each column says that signal and scatter are about alike.
        columns = float(np.prod(task.features.shape))
        if loss == "poisson":
            return PoissonRegressor(alpha=columns / max(1, int(task.rows.sum())), max_iter=300)
        return RidgeRegressor(alpha=columns)
    if hasattr(model, "fit") and not is_regressor(model):
        raise InputError(f"{type(model).__name__} is no regressor: choose one of scikit-learn, ridge or trees.")
    return model


def _regression(task: Task, loss: LossName, model: Any) -> Regression:
    linear = "linear_model" in type(model).__module__
    return Regression(model, loss, _LINEAR_ROUNDS if linear else _ROUNDS).prepare(task.features, task.rows)


def _fit_regressor(task: Task, learner: Regression, noisy: Release, known: "Beforehand") -> Predictor:
    return replace(learner, anchor=known.anchor(int(task.rows.sum()))).fit(task.features, noisy)


def _fit_network(task: Task, loss: LossName, backbone: Any, noisy: Release, known: "Beforehand") -> Predictor:
    from labeldp.learn.backbones import Network, build
    from labeldp.learn.base import with_new_head
    from labeldp.learn.bayes import Bayes
    from labeldp.learn.encoded import members
    from labeldp.learn.model import Model

    grid = grid_of(task.space)
    numbers = {"low": grid[0], "high": grid[-1], "loss": loss, "centre": known.centre, "deviation": known.deviation}
    start = None if task.encoder is None else members(task.encoder)[0]
    if start is not None:
        if not isinstance(start.network, Network):
            raise InputError("Numbers need an encoder of this library: train one with labeldp.representation.")
        network = with_new_head(copy.deepcopy(start.network), len(grid), numbers)
        start = Model(network, task.space, start.provenance)
    if isinstance(backbone, str):
        usual = "mf" if len(task.features.shape) == 2 else "resnet18"
        backbone = usual if backbone == "auto" else backbone
        backbone = partial(build, backbone, numbers=numbers)
    return Bayes(backbone, task.training or default_training(task)).fit(task.features, noisy, start)


# What is known beforehand.


@dataclass(frozen=True)
class Beforehand:
    """The distribution of all labels, as far as a first release tells it, and how far off its mean may be."""

    prior: Floats
    centre: float
    deviation: float
    error: float

    @classmethod
    def of(cls, release: Release) -> "Beforehand":
        """Read a histogram, or mean and spread."""
        grid = grid_of(release.space)
        middle, width = (grid[0] + grid[-1]) / 2, grid[-1] - grid[0]
        if isinstance(release, NoisyCounts):
            # Noise of both signs averages out of these sums; cut at zero, it would look like spread.
            share = release.counts[0] / max(1, int(release.sizes[0]))
            away, square = float(share @ (grid - middle)), float(share @ (grid - middle) ** 2)
            error = release.scale * 2**0.5 * float(np.linalg.norm(grid - middle)) / max(1, int(release.sizes[0]))
        elif isinstance(release, NoisySums):
            away, square = release.mean, release.mean_square
            error = release.noise / max(1, release.size)
        else:
            raise TypeError("Neither a histogram nor sums.")
        centre = float(np.clip(middle + away, grid[0], grid[-1]))
        deviation = float(np.sqrt(np.clip(square - away**2, (width / 20) ** 2, width**2 / 12)))
        if isinstance(release, NoisyCounts):
            prior = np.maximum(release.counts[0], 0.0) + release.scale  # a value that noise hides may well occur
        else:
            prior = np.exp(-((grid - centre) ** 2) / (2 * (deviation**2 + error**2)))
        return cls(prior / prior.sum(), centre, deviation, error)

    def anchor(self, rows: int) -> Anchor:
        """Return the average row: worth as many rows as know the mean as well, but never many against all."""
        worth = (self.deviation / max(self.error, 1e-9)) ** 2
        return Anchor(self.centre, self.deviation, min(worth, rows / 10))


def beforehand_query(task: Task, epsilon: float) -> Any:
    """Return what tells the distribution of all labels: a histogram where its counts stand out, else two numbers."""
    rows, values = int(task.whole.rows.sum()), len(task.space)
    if rows * epsilon / task.whole.labels_per_user / values >= _CLEAR:
        return GroupHistogram(np.zeros(len(task.rows), np.int64), epsilon)
    return NumberQuery(np.ones((len(task.rows), 1)), epsilon, values=values)


def share_beforehand(task: Task) -> float:
    """Return the share of epsilon that brings the mean of all labels as near as it should be known.

    The sum of n numbers has noise of deviation sqrt(2) times the range over epsilon.
    """
    task = task.whole
    needed = 2**0.5 / (_SURE * max(1, int(task.rows.sum())))
    return float(np.clip(needed / task.label_epsilon, _LEAST, _MOST))


# Sums or bins?


def _lift(task: Task) -> Lift:
    dense = task.points.kind != "table"
    return Lift.fit(task.points, columns=32 if dense and not task.delta else 256, cut=True)


def sums_are_better(task: Task) -> bool:
    """Whether a line from noisy sums promises less error than one from the evidence of bins, by public facts.

    Noise adds to every sum, however many rows there are; evidence makes every row worth less, but the mean of all
    labels is known beside it.
    """
    task = task.whole
    if len(task.features.shape) > 1 and task.encoder is None:  # pixels make no line, and ids have no sums
        return False
    rows = _lifted(task)
    query = NumberQuery(rows, task.label_epsilon, task.delta, values=len(task.space))
    noise = (query.sigma / query.scale / (2 * (len(task.space) - 1))) ** 2  # the range being 1 wide
    return _expected(rows, 1.0, noise) < _by_bins(task, rows)


def _lifted(task: Task) -> Floats:
    return _lift(task)(task.points)[task.rows].astype(np.float64)


def _by_bins(task: Task, rows: Floats) -> float:
    """Return the squared error, summed over rows, that a line from the evidence of bins is expected to have."""
    share = share_beforehand(task)
    worth = bins_tell(float(f"{(1 - share) * task.label_epsilon:.2g}"))
    features = rows[:, :-1] - rows[:, :-1].mean(axis=0)
    mean = 1 / ((share * task.label_epsilon * len(rows)) ** 2 / 2 + len(rows) * worth / _PART)
    return _expected(features, worth, 0.0) + len(rows) * mean


def _expected(rows: Floats, worth: float, noise: float) -> float:
    """Return the squared error, summed over rows, that a line fitted as `NoisySums` does it is expected to have."""
    size = np.maximum(np.linalg.eigvalsh(rows.T @ rows), 0)
    spread = _PART * len(rows) / max(float(size.sum()), 1e-12)
    left = spread * (1 - spread * size**2 / (spread * size**2 + size * _PART / worth + noise + 1e-300))
    return float(size @ left)


@cache
def bins_tell(epsilon: float) -> float:
    """Return how much of a clean label's worth its evidence keeps: the share of variance that a guess from it takes."""
    space = LabelSpace.range(0, 100, 1)
    even: NDArray[np.float64] = np.full(101, 1 / 101)
    nothing = float(np.var(np.arange(101)))
    return max(1 - RROnBins(epsilon, even).expected_loss(space) / nothing, 1e-9)
