"""Logistic regression from noisy sums by label, with prior variances of maximum likelihood.

Let A be a public matrix, y the labels of one class and z = A'y + e the released sums, where e is the privacy noise of
variance s^2. The gradient of the likelihood is A'(y - p), so it depends on the labels through A'y alone. Around
weights w with probabilities p and H = A' diag(p (1 - p)) A, the residual sums r = z - A'p + H w are about
N(H w, H + s^2 I): labels have the covariance H, and noise is added. With a normal prior of covariance T the posterior
mean is w = T H (H T H + H + s^2 I)^-1 r. If only the sums F'A'y of functions F of the columns are released, H and r are
multiplied by F' likewise. T is a sum of components, one or more for each public column. Their variances maximize the
likelihood of r (MacKay's fixed point), with an inverse gamma prior around the geometric mean of all components of one
kind. An irrelevant column gets a variance near zero. The step is repeated around the new weights. The whole computation
is post-processing of the released sums.

With several classes there is one such problem for each. Their noise and label covariance cancel over the classes. The
factor K / (K - 1) turns p (1 - p) into the curvature of centered weights for balanced classes.
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

_CURVATURE_ROWS = 50_000  # most rows from which the curvature is computed
_MAX_STEP = 4.0  # largest change of a score in one step
_MIN_VARIANCE, _MAX_VARIANCE = 1e-7, 1e5  # bounds of prior variances
_VARIANCE_ROUNDS = 5  # updates of the variances in each step
_POOLING_WEIGHT = 0.3  # degrees of freedom of the inverse gamma prior of variances
_TOLERANCE = 0.02  # largest change of a score at which the fit has converged


@dataclass
class PriorComponent:
    """A part of the prior covariance of the weights.

    Attributes:
        columns: The columns of the design.
        kernel: The covariance of their weights up to a factor; None for the identity.
        variance: The factor, which the fit changes.
        kind: Components of one kind have a common prior of their variances.
    """

    column_slice: slice
    kernel: Floats | None = None
    variance: float = 0.1
    kind: str = ""


@dataclass(frozen=True)
class FitResult:
    """Weights of a fitted model.

    Attributes:
        weights: (columns, outputs): log-odds of the second of two classes, or a score for each class.
        intercept: (outputs,).
        components: The prior components with their final variances.
    """

    weights: Floats
    intercept: Floats
    components: tuple[PriorComponent, ...] = field(repr=False)


def output_probabilities(scores: Floats) -> Floats:
    """Return the probability of each output: the logistic function of one score, or the softmax of several."""
    return expit(scores) if scores.shape[1] == 1 else softmax(scores, axis=1)


def class_probabilities(scores: Floats) -> Floats:
    """Return the probability of each class, (rows, classes); for two classes from log-odds, (rows, 1)."""
    probabilities = output_probabilities(scores)
    return np.concatenate([1 - probabilities, probabilities], axis=1) if probabilities.shape[1] == 1 else probabilities


def fit_sums(
    design: Design,
    sums: Floats,
    totals: Floats,
    noise_covariance: float | Floats,
    components: Sequence[PriorComponent],
    offset: Floats | None = None,
    *,
    functions: Floats | None = None,
    max_steps: int = 8,
    fit_variances: bool = True,
) -> FitResult:
    """Fit a logistic model to noisy sums.

    Args:
        design: The public matrix A, of the rows that were summed.
        sums: Noisy A'y, (columns, outputs): for the second of two classes, or for each of several classes. With
            `functions`, noisy F'A'y, (functions, outputs).
        totals: Noisy number of rows of each output, (outputs,).
        noise_covariance: The variance of the noise in each sum, or its covariance (sums, sums).
        components: The prior with initial variances.
        offset: Scores of another model, (rows, outputs).
        functions: F, (columns, functions); None if every column was summed.
        max_steps: The most steps of the weights.
        fit_variances: Whether to fit the variances of the prior; else they are constant.

    Returns:
        The fitted weights.
    """
    with threadpool_limits(1, user_api="blas"):
        return _fit_sums(
            design, sums, totals, noise_covariance, components, offset, functions, max_steps, fit_variances
        )


def _fit_sums(
    design: Design,
    sums: Floats,
    totals: Floats,
    noise_covariance: float | Floats,
    components: Sequence[PriorComponent],
    offset: Floats | None,
    functions: Floats | None,
    max_steps: int,
    fit_variances: bool,
) -> FitResult:
    """Fit on one thread: more are slower for small matrices, and change the last bits of the result."""
    n_rows, n_outputs = len(design), sums.shape[1]
    factor = 1.0 if n_outputs == 1 else n_outputs / (n_outputs - 1)
    fitted_components = copy_components(components)
    sample = design.sample(_CURVATURE_ROWS)
    base_scores = np.zeros((n_rows, n_outputs)) if offset is None else offset
    fraction = np.clip(totals / n_rows, 0.5 / n_rows, 1 - 0.5 / n_rows)
    target_totals = fraction * n_rows
    intercept = np.zeros(n_outputs) if offset is not None else _log_odds(fraction)
    weights = np.zeros((design.n_columns, n_outputs))
    scores = base_scores + intercept
    for step in range(max_steps):
        intercept, probabilities = _fit_intercept(scores, intercept, target_totals)
        likelihood_weights = factor * probabilities * (1 - probabilities)
        residual = sums - apply_functions(functions, design.transpose_dot(probabilities))
        problems = []
        for output in range(n_outputs):
            curvature = compute_curvature(design, likelihood_weights[:, output], sample)
            problems.append(
                (curvature, residual[:, output] + apply_functions(functions, curvature @ weights[:, output]))
            )
        for _ in range(_VARIANCE_ROUNDS if fit_variances and step + 1 < max_steps else 1):
            means, factors = compute_posterior(problems, fitted_components, noise_covariance, functions)
            if fit_variances:
                scale_variances(fitted_components, factors)
        change = np.stack(means, axis=1) - weights
        if n_outputs > 1:
            change -= change.mean(axis=1, keepdims=True)
        score_change = design.dot(change)
        largest = float(np.abs(score_change).max(initial=0.0))
        length = min(1.0, _MAX_STEP / max(largest, 1e-12))
        weights += length * change
        scores += length * score_change
        if largest < _TOLERANCE:
            break
    intercept, _ = _fit_intercept(scores, intercept, target_totals)
    return FitResult(weights, intercept, tuple(fitted_components))


def copy_components(components: Sequence[PriorComponent], factor: float = 1.0) -> list[PriorComponent]:
    """Return copies of components with all variances multiplied by a factor."""
    return [replace(each, variance=each.variance * factor) for each in components]


def scale_variances(components: Sequence[PriorComponent], factors: Sequence[float]) -> None:
    """Multiply the variance of each component by a factor, in place."""
    for component, factor in zip(components, factors, strict=True):
        component.variance = float(np.clip(component.variance * factor, _MIN_VARIANCE, _MAX_VARIANCE))


def compute_curvature(
    design: Design, row_weights: Floats, sample: tuple[Design, NDArray[np.int64]] | None = None
) -> Floats:
    """Return the curvature A' diag(row_weights) A after elimination of the intercept.

    Args:
        design: The public matrix A.
        row_weights: The weight of each row, (rows,).
        sample: Some rows of A and their ids, for a faster estimate; None to select them here.

    Returns:
        A positive semidefinite matrix, (columns, columns).
    """
    sampled_design, row_ids = sample or design.sample(_CURVATURE_ROWS)
    total, mean = row_weights.sum(), design.transpose_dot(row_weights[:, None])[:, 0]
    curvature = sampled_design.gram(row_weights[row_ids]) * (total / max(row_weights[row_ids].sum(), 1e-300))
    return curvature - np.outer(mean, mean) / total


def compute_posterior(
    problems: Sequence[tuple[Floats, Floats]],
    components: Sequence[PriorComponent],
    noise_covariance: float | Floats,
    functions: Floats | None,
) -> tuple[list[Floats], list[float]]:
    """Return the posterior mean of each output, and the factor by which each component's variance changes."""
    means, fits, dof = [], np.zeros(len(components)), np.zeros(len(components))
    for curvature, residual in problems:
        prior_product = np.zeros(curvature.shape)  # H T
        for component in components:
            block = curvature[:, component.column_slice]
            prior_product[:, component.column_slice] += component.variance * (
                block if component.kernel is None else block @ component.kernel
            )
        total = prior_product @ curvature
        total += curvature
        observed = curvature
        if functions is not None and not functions.shape[1]:  # every column is constant
            means.append(np.zeros(len(curvature)))
            continue
        if functions is not None:
            total, observed = functions.T @ total @ functions, functions.T @ curvature
        total += noise_covariance * np.eye(len(total)) if np.ndim(noise_covariance) == 0 else noise_covariance
        cholesky = _robust_cholesky(total)
        solution = cho_solve(cholesky, residual, check_finite=False)
        dual = observed.T @ solution
        explained = observed.T @ cho_solve(cholesky, observed, check_finite=False)
        means.append(prior_product.T @ (solution if functions is None else functions @ solution))
        for index, component in enumerate(components):
            own, inner = dual[component.column_slice], explained[component.column_slice, component.column_slice]
            fits[index] += own @ own if component.kernel is None else own @ component.kernel @ own
            dof[index] += np.trace(inner) if component.kernel is None else np.sum(component.kernel * inner)
    return means, _variance_factors(components, fits, dof, len(problems))


def _variance_factors(components: Sequence[PriorComponent], fits: Floats, dof: Floats, n_outputs: int) -> list[float]:
    """Return the factor by which each variance changes: energy of its weights over effective degrees of freedom."""
    variances = np.array([component.variance for component in components])
    energy, dof = variances * fits, variances * dof  # equal at the fixed point
    component_kind = np.array([component.kind for component in components])
    squared_factors = np.empty(len(components))
    for kind in set(component_kind):
        same_kind = component_kind == kind
        weight = _POOLING_WEIGHT * n_outputs * (np.count_nonzero(same_kind) > 1)
        mean_variance = float(np.exp(np.log(variances[same_kind]).mean()))
        squared_factors[same_kind] = (energy[same_kind] + weight * mean_variance / variances[same_kind]) / np.maximum(
            dof[same_kind] + weight, 1e-300
        )
    return [float(factor) for factor in np.sqrt(squared_factors)]


def apply_functions(functions: Floats | None, values: Floats) -> Floats:
    """Return F' times values, or the values if there are no functions."""
    return values if functions is None else functions.T @ values


def _robust_cholesky(matrix: Floats) -> Any:
    """Return the Cholesky factor of a covariance, with the smallest sufficient jitter on its diagonal."""
    diagonal, largest = np.diag_indices(len(matrix)), max(float(matrix.diagonal().max()), 1e-300)
    for exponent in (-12, -9, -6, -3):
        trial = matrix.copy()
        trial[diagonal] += largest * 10.0**exponent
        with suppress(LinAlgError):
            return cho_factor(trial, lower=True, overwrite_a=True, check_finite=False)
    return cho_factor(np.diag(matrix.diagonal() + largest), lower=True)


def _log_odds(fraction: Floats) -> Floats:
    return np.log(fraction / (1 - fraction)) if fraction.size == 1 else np.log(fraction / fraction.sum())


def _fit_intercept(scores: Floats, intercept: Floats, target_totals: Floats) -> tuple[Floats, Floats]:
    """Shift all scores in place until the expected number of rows of each output equals its target."""
    for _ in range(4):
        probabilities = output_probabilities(scores)
        totals = probabilities.sum(axis=0)
        slope = np.maximum((probabilities * (1 - probabilities)).sum(axis=0), 1e-9)
        shift = np.clip((target_totals - totals) / slope, -1.0, 1.0)
        scores += shift
        intercept = intercept + shift
        if float(np.abs(shift).max()) < 1e-4:
            break
    return intercept, output_probabilities(scores)


def smooth_kernel(n_ordered: int, width: int, length_scale: float = 0.2) -> Floats:
    """Return the covariance of a smooth function over ordered bins; other bins have none.

    Args:
        n_ordered: The number of leading ordered bins.
        width: The number of all bins.
        length_scale: The length scale of the kernel, as a share of all ordered bins.

    Returns:
        A positive semidefinite matrix, (width, width), with zeros for other bins.
    """
    positions = np.arange(n_ordered) / max(n_ordered - 1, 1)
    kernel = np.zeros((width, width))
    kernel[:n_ordered, :n_ordered] = np.exp(-0.5 * ((positions[:, None] - positions) / length_scale) ** 2)
    return kernel


def linear_kernel(n_ordered: int, width: int) -> Floats:
    """Return the covariance of a linear function over ordered bins; other bins have none.

    Args:
        n_ordered: The number of leading ordered bins.
        width: The number of all bins.
    """
    values = np.zeros(width)
    values[:n_ordered] = np.linspace(-1, 1, n_ordered) * 3**0.5
    return np.outer(values, values)


def make_prior(widths: Sequence[int], n_ordered: Sequence[int], variance: float = 0.1) -> list[PriorComponent]:
    """Return a prior for one-hot bins: linear, smooth and rough for ordered bins, independent for categories.

    Args:
        widths: The number of bins of each column.
        n_ordered: The number of ordered bins of each column.
        variance: The initial variance.

    Returns:
        Three components for each column of ordered bins and one for others, in the order of the columns.
    """
    components, start = [], 0
    for width, n_column_ordered in zip(widths, n_ordered, strict=True):
        column_slice = slice(start, start + width)
        if n_column_ordered > 4:
            components.append(PriorComponent(column_slice, smooth_kernel(n_column_ordered, width), variance, "smooth"))
            components.append(PriorComponent(column_slice, linear_kernel(n_column_ordered, width), variance, "linear"))
        components.append(
            PriorComponent(
                column_slice,
                None,
                variance / 2 if n_column_ordered > 4 else 2 * variance,
                "rough" if n_column_ordered > 4 else "free",
            )
        )
        start += width
    return components


def fit_block(
    codes: NDArray[np.integer],
    width: int,
    sums: Floats,
    noise_variance: float | Floats,
    offset: Floats,
    *,
    variance: float = 0.05,
    max_steps: int = 6,
) -> tuple[Floats, float]:
    """Fit the weights of the bins of one column, with the scores of another model as offset.

    It is `fit_sums` for one-hot bins with independent weights. Their curvature is diagonal, so the time is linear in
    the number of bins.

    Args:
        codes: The bin of each row.
        width: The number of bins.
        sums: Noisy A'y, (width, outputs).
        noise_variance: The variance of the noise in each sum: one number, or (width, 1).
        offset: Scores of the other model, (rows, outputs).
        variance: The initial prior variance.
        max_steps: The most steps of the weights.

    Returns:
        The weights, (width, outputs), and their prior variance.
    """
    n_outputs = sums.shape[1]
    factor = 1.0 if n_outputs == 1 else n_outputs / (n_outputs - 1)
    design, weights = BinDesign([codes], [width]), np.zeros((width, n_outputs))
    for _ in range(max_steps):
        probabilities = output_probabilities(offset + design.dot(weights))
        curvature = factor * design.transpose_dot(probabilities * (1 - probabilities))
        residual = sums - design.transpose_dot(probabilities) + curvature * weights
        for _ in range(_VARIANCE_ROUNDS):
            total = variance * curvature**2 + curvature + noise_variance + 1e-12
            fits = float(((curvature * residual / total) ** 2).sum())
            dof = float((curvature**2 / total).sum())
            variance = float(np.clip(variance * np.sqrt(fits / max(dof, 1e-300)), _MIN_VARIANCE, _MAX_VARIANCE))
        total = variance * curvature**2 + curvature + noise_variance + 1e-12
        change = variance * curvature * residual / total - weights
        if n_outputs > 1:
            change -= change.mean(axis=1, keepdims=True)
        largest = float(np.abs(change).max(initial=0.0))
        weights = weights + change * min(1.0, _MAX_STEP / max(largest, 1e-12))
        if largest < _TOLERANCE:
            break
    return weights, variance
