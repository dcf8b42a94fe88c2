"""Logistic regression from noisy sums by label, with prior variances that the sums themselves decide.

Let A be a public matrix, y the labels of one class and z = A'y + e the released sums, where e is the privacy noise of
variance s^2. The gradient of the likelihood is A'(y - p), so that A'y is all that it needs of the labels. Around
weights w with probabilities p and H = A' diag(p (1 - p)) A, the residual sums r = z - A'p + H w are about
N(H w, H + s^2 I): labels scatter with covariance H, and noise is added. With a normal prior of covariance T the
posterior mean is w = T H (H T H + H + s^2 I)^-1 r. Where only the sums F'A'y of functions F of the columns are
released, H and r are multiplied by F' likewise. T is a sum of components, one or more for each public column, whose
variances maximise the likelihood of r (MacKay's fixed point), with an inverse gamma prior around the geometric
mean of all components of one kind. A column that tells nothing gets a variance near zero. The step is repeated
around the new weights. The whole computation is post-processing of the released sums.

Several classes have one such problem each. Noise and scatter of their sums cancel over the classes, and the factor
K / (K - 1) turns p (1 - p) into the curvature that centred weights have where classes are even.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit, softmax
from threadpoolctl import threadpool_limits

from labeldp.learn.additive.design import BinDesign, Design, Floats

_CURVATURE_ROWS = 50_000  # rows from which the curvature is computed, if there are more
_LARGEST_STEP = 4.0  # of a score in one step
_SMALLEST, _LARGEST = 1e-7, 1e5  # prior variances
_ROUNDS = 5  # of the search for variances in each step
_COMMON = 0.3  # degrees of freedom that the mean variance of a kind of components counts as
_ENOUGH = 0.02  # a step that moves no score further ends the fit


@dataclass
class Component:
    """A part of the prior covariance of the weights.

    Attributes:
        place: The columns of the design that it is for.
        kernel: The covariance of their weights up to a factor; None for the identity.
        variance: The factor, which the fit changes.
        kind: Components of one kind are expected to have similar variances.
    """

    place: slice
    kernel: Floats | None = None
    variance: float = 0.1
    kind: str = ""


@dataclass(frozen=True)
class Fit:
    """Weights of a fitted model.

    Attributes:
        weights: (columns, outputs): log-odds of the second of two classes, or a score for each class.
        intercept: (outputs,).
        components: The components with their final variances.
    """

    weights: Floats
    intercept: Floats
    components: tuple[Component, ...] = field(repr=False)


def probabilities(scores: Floats) -> Floats:
    """Return the probability of each output: of one score its logistic function, of several their softmax."""
    return expit(scores) if scores.shape[1] == 1 else softmax(scores, axis=1)


def class_probabilities(scores: Floats) -> Floats:
    """Return the probability of each class, (rows, classes): of two classes from their log-odds, (rows, 1)."""
    found = probabilities(scores)
    return np.concatenate([1 - found, found], axis=1) if found.shape[1] == 1 else found


def fit_sums(
    design: Design,
    sums: Floats,
    totals: Floats,
    noise: float | Floats,
    components: Sequence[Component],
    offset: Floats | None = None,
    *,
    functions: Floats | None = None,
    steps: int = 8,
    search: bool = True,
) -> Fit:
    """Fit a logistic model to noisy sums.

    Args:
        design: The public matrix A, of the rows that were summed.
        sums: Noisy A'y, (columns, outputs): of the second of two classes, or of each of several classes. With
            `functions`, noisy F'A'y, (functions, outputs).
        totals: Noisy number of rows of each output, (outputs,).
        noise: The variance of the noise in each sum, or its covariance (sums, sums).
        components: The prior. Their variances are where the search begins.
        offset: Scores that another model gives to the rows, (rows, outputs).
        functions: F, (columns, functions); None where every column was summed.
        steps: The most steps of the weights.
        search: Whether to look for the variances of the prior; otherwise they stay as they are.

    Returns:
        The fitted weights.
    """
    with threadpool_limits(1, user_api="blas"):
        return _fitted(design, sums, totals, noise, components, offset, functions, steps, search)


def _fitted(
    design: Design,
    sums: Floats,
    totals: Floats,
    noise: float | Floats,
    components: Sequence[Component],
    offset: Floats | None,
    functions: Floats | None,
    steps: int,
    search: bool,
) -> Fit:
    """Fit on one thread: several wait for each other in small matrices, and change the last bits of the result."""
    rows, outputs = len(design), sums.shape[1]
    factor = 1.0 if outputs == 1 else outputs / (outputs - 1)
    parts = copies(components)
    sample = design.sample(_CURVATURE_ROWS)
    base = np.zeros((rows, outputs)) if offset is None else offset
    share = np.clip(totals / rows, 0.5 / rows, 1 - 0.5 / rows)
    wanted = share * rows
    intercept = np.zeros(outputs) if offset is not None else _log_odds(share)
    weights = np.zeros((design.columns, outputs))
    scores = base + intercept
    for step in range(steps):
        intercept, chance = _level(scores, intercept, wanted)
        curve = factor * chance * (1 - chance)
        residual = sums - applied(functions, design.sums(chance))
        problems = []
        for place in range(outputs):
            curvature = curvature_of(design, curve[:, place], sample)
            problems.append((curvature, residual[:, place] + applied(functions, curvature @ weights[:, place])))
        for _ in range(_ROUNDS if search and step + 1 < steps else 1):
            found, changes = posterior(problems, parts, noise, functions)
            if search:
                with_changes(parts, changes)
        change = np.stack(found, axis=1) - weights
        if outputs > 1:
            change -= change.mean(axis=1, keepdims=True)
        moved = design.dot(change)
        largest = float(np.abs(moved).max(initial=0.0))
        length = min(1.0, _LARGEST_STEP / max(largest, 1e-12))
        weights += length * change
        scores += length * moved
        if largest < _ENOUGH:
            break
    intercept, _ = _level(scores, intercept, wanted)
    return Fit(weights, intercept, tuple(parts))


def copies(components: Sequence[Component], variance: float = 1.0) -> list[Component]:
    """Return components that a fit may change, with all variances multiplied by a number."""
    return [replace(each, variance=each.variance * variance) for each in components]


def with_changes(parts: Sequence[Component], changes: Sequence[float]) -> None:
    """Multiply the variance of each component by its change."""
    for part, change in zip(parts, changes, strict=True):
        part.variance = float(np.clip(part.variance * change, _SMALLEST, _LARGEST))


def curvature_of(design: Design, weight: Floats, sample: tuple[Design, NDArray[np.int64]] | None = None) -> Floats:
    """Return A' diag(weight) A less the part that an intercept takes, which all rows have in common.

    Args:
        design: The public matrix A.
        weight: One weight a row, (rows,).
        sample: Some rows of A and their numbers, for an estimate that takes less time; None to draw it here.

    Returns:
        A positive semidefinite matrix, (columns, columns).
    """
    some, places = sample or design.sample(_CURVATURE_ROWS)
    total, mean = weight.sum(), design.sums(weight[:, None])[:, 0]
    found = some.gram(weight[places]) * (total / max(weight[places].sum(), 1e-300))
    return found - np.outer(mean, mean) / total


def posterior(
    problems: Sequence[tuple[Floats, Floats]],
    parts: Sequence[Component],
    noise: float | Floats,
    functions: Floats | None,
) -> tuple[list[Floats], list[float]]:
    """Return the posterior mean of each output, and the factor by which each component's variance changes."""
    means, fits, freedom = [], np.zeros(len(parts)), np.zeros(len(parts))
    for curvature, residual in problems:
        spread = np.zeros(curvature.shape)  # H T
        for part in parts:
            block = curvature[:, part.place]
            spread[:, part.place] += part.variance * (block if part.kernel is None else block @ part.kernel)
        total = spread @ curvature
        total += curvature
        seen = curvature
        if functions is not None and not functions.shape[1]:  # every column is constant: there is nothing to fit
            means.append(np.zeros(len(curvature)))
            continue
        if functions is not None:
            total, seen = functions.T @ total @ functions, functions.T @ curvature
        total += noise * np.eye(len(total)) if np.ndim(noise) == 0 else noise
        factored = _factored(total)
        solved = cho_solve(factored, residual, check_finite=False)
        dual = seen.T @ solved
        explained = seen.T @ cho_solve(factored, seen, check_finite=False)
        means.append(spread.T @ (solved if functions is None else functions @ solved))
        for place, part in enumerate(parts):
            own, inner = dual[part.place], explained[part.place, part.place]
            fits[place] += own @ own if part.kernel is None else own @ part.kernel @ own
            freedom[place] += np.trace(inner) if part.kernel is None else np.sum(part.kernel * inner)
    return means, _changes(parts, fits, freedom, len(problems))


def _changes(parts: Sequence[Component], fits: Floats, freedom: Floats, outputs: int) -> list[float]:
    """Return the factor by which each variance changes, from what its weights fit and how many the sums determine."""
    variances = np.array([part.variance for part in parts])
    energy, freedom = variances * fits, variances * freedom  # the fixed point has energy = freedom
    kinds = np.array([part.kind for part in parts])
    found = np.empty(len(parts))
    for kind in set(kinds):
        own = kinds == kind
        weight = _COMMON * outputs * (np.count_nonzero(own) > 1)
        common = float(np.exp(np.log(variances[own]).mean()))
        found[own] = (energy[own] + weight * common / variances[own]) / np.maximum(freedom[own] + weight, 1e-300)
    return [float(change) for change in np.sqrt(found)]


def applied(functions: Floats | None, values: Floats) -> Floats:
    """Return F' times values, or the values themselves without functions."""
    return values if functions is None else functions.T @ values


def _factored(matrix: Floats) -> Any:
    """Return the Cholesky factor of a covariance, with as little added to its diagonal as rounding errors need."""
    places, largest = np.diag_indices(len(matrix)), max(float(matrix.diagonal().max()), 1e-300)
    for exponent in (-12, -9, -6, -3):
        trial = matrix.copy()
        trial[places] += largest * 10.0**exponent
        with suppress(LinAlgError):
            return cho_factor(trial, lower=True, overwrite_a=True, check_finite=False)
    return cho_factor(np.diag(matrix.diagonal() + largest), lower=True)


def _log_odds(share: Floats) -> Floats:
    return np.log(share / (1 - share)) if share.size == 1 else np.log(share / share.sum())


def _level(scores: Floats, intercept: Floats, wanted: Floats) -> tuple[Floats, Floats]:
    """Shift all scores in place until the expected number of rows of each output is the wanted one."""
    for _ in range(4):
        chance = probabilities(scores)
        found = chance.sum(axis=0)
        slope = np.maximum((chance * (1 - chance)).sum(axis=0), 1e-9)
        shift = np.clip((wanted - found) / slope, -1.0, 1.0)
        scores += shift
        intercept = intercept + shift
        if float(np.abs(shift).max()) < 1e-4:
            break
    return intercept, probabilities(scores)


def smooth_kernel(ordered: int, width: int, reach: float = 0.2) -> Floats:
    """Return the covariance of a smooth function over ordered bins; other bins have none.

    Args:
        ordered: The number of leading bins that are in order.
        width: The number of all bins.
        reach: The distance, as a share of all ordered bins, over which the function changes.

    Returns:
        A positive semidefinite matrix, (width, width), with zeros for other bins.
    """
    places = np.arange(ordered) / max(ordered - 1, 1)
    kernel = np.zeros((width, width))
    kernel[:ordered, :ordered] = np.exp(-0.5 * ((places[:, None] - places) / reach) ** 2)
    return kernel


def linear_kernel(ordered: int, width: int) -> Floats:
    """Return the covariance of a linear function over ordered bins; other bins have none.

    Args:
        ordered: The number of leading bins that are in order.
        width: The number of all bins.
    """
    places = np.zeros(width)
    places[:ordered] = np.linspace(-1, 1, ordered) * 3**0.5
    return np.outer(places, places)


def prior_of(widths: Sequence[int], ordered: Sequence[int], variance: float = 0.1) -> list[Component]:
    """Return a prior for one-hot bins: linear, smooth and rough for ordered bins, independent for categories.

    Args:
        widths: The number of bins of each column.
        ordered: How many of them are in order.
        variance: The first guess of all variances.

    Returns:
        Three components for each column of ordered bins and one for others, in the order of the columns.
    """
    found, start = [], 0
    for width, count in zip(widths, ordered, strict=True):
        place = slice(start, start + width)
        if count > 4:
            found.append(Component(place, smooth_kernel(count, width), variance, "smooth"))
            found.append(Component(place, linear_kernel(count, width), variance, "linear"))
        found.append(
            Component(place, None, variance / 2 if count > 4 else 2 * variance, "rough" if count > 4 else "free")
        )
        start += width
    return found


def fit_block(
    codes: NDArray[np.integer],
    width: int,
    sums: Floats,
    noise: float | Floats,
    offset: Floats,
    *,
    variance: float = 0.05,
    steps: int = 6,
) -> tuple[Floats, float]:
    """Fit the weights of one column of bins on top of another model.

    It is `fit_sums` for one-hot bins with independent weights, whose curvature is diagonal: the work is linear in the
    number of bins.

    Args:
        codes: The bin of each row.
        width: The number of bins.
        sums: Noisy A'y, (width, outputs).
        noise: The variance of the noise in each sum: one number, or (width, 1).
        offset: Scores that the other model gives to the rows, (rows, outputs).
        variance: Where the search for the prior variance begins.
        steps: The most steps of the weights.

    Returns:
        The weights, (width, outputs), and their prior variance.
    """
    outputs = sums.shape[1]
    factor = 1.0 if outputs == 1 else outputs / (outputs - 1)
    design, weights = BinDesign([codes], [width]), np.zeros((width, outputs))
    for _ in range(steps):
        chance = probabilities(offset + design.dot(weights))
        curvature = factor * design.sums(chance * (1 - chance))
        residual = sums - design.sums(chance) + curvature * weights
        for _ in range(_ROUNDS):
            total = variance * curvature**2 + curvature + noise + 1e-12
            fits = float(((curvature * residual / total) ** 2).sum())
            freedom = float((curvature**2 / total).sum())
            variance = float(np.clip(variance * np.sqrt(fits / max(freedom, 1e-300)), _SMALLEST, _LARGEST))
        total = variance * curvature**2 + curvature + noise + 1e-12
        change = variance * curvature * residual / total - weights
        if outputs > 1:
            change -= change.mean(axis=1, keepdims=True)
        largest = float(np.abs(change).max(initial=0.0))
        weights = weights + change * min(1.0, _LARGEST_STEP / max(largest, 1e-12))
        if largest < _ENOUGH:
            break
    return weights, variance
