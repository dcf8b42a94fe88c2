"""Additive regression from noisy sums, by the method of `fit` with a curvature that does not depend on the weights.

Let A be a public matrix, y the numbers less their mean and z = A'y + e the released sums. With residual variance v,
H = A'A / v replaces the curvature, z / v the residual sums, and s^2 / v^2 the variance of the noise. The residual
variance v is the variance of all numbers less that of the fitted predictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from labeldp.accounting.lineage import Provenance
from labeldp.data.tables import Table
from labeldp.learn.additive.bins import BinnedColumn
from labeldp.learn.additive.design import BinDesign, Design, Floats
from labeldp.learn.additive.fit import (
    FitResult,
    PriorComponent,
    compute_curvature,
    compute_posterior,
    copy_components,
    make_prior,
    scale_variances,
)
from labeldp.learn.additive.model import AdditiveNumberModel, Term
from labeldp.learn.additive.sums import combine_estimates, stack_functions
from labeldp.releases.moments import NoisySums
from labeldp.releases.numeric import NumericResponses

_MAX_ROUNDS = 40
_MIN_RESIDUAL_FRACTION = 0.02  # least residual variance, as a share of the variance of all numbers
_TOLERANCE = 1e-3  # change of that share at which the fit has converged


def fit_number_sums(
    design: Design,
    sums: Floats,
    noise_covariance: float | Floats,
    variance: float,
    components: Sequence[PriorComponent],
    *,
    functions: Floats | None = None,
) -> FitResult:
    """Fit a linear model of public columns to noisy sums of numbers.

    Args:
        design: The public matrix A, of the rows that were summed.
        sums: Noisy A'y, (columns, 1), or F'A'y with `functions`; y are numbers less their mean, or residuals of another
            model.
        noise_covariance: The variance of the noise in each sum, or its covariance (sums, sums).
        variance: The mean of y squared.
        components: The prior with initial variances, as shares of `variance`.
        functions: F, (columns, functions); None if every column was summed.

    Returns:
        The fitted weights; their mean over the rows is the negative of the intercept.
    """
    with threadpool_limits(1, user_api="blas"):
        n_rows, scale = len(design), variance**0.5  # numbers are standardized
        fitted_components = copy_components(components)
        curvature = compute_curvature(design, np.ones(n_rows))
        residual_fraction = 1.0
        scaled_sums, scaled_noise = sums[:, 0] / scale, noise_covariance / variance
        for _ in range(_MAX_ROUNDS):
            previous = residual_fraction
            (weights,), factors = compute_posterior(
                [(curvature / residual_fraction, scaled_sums / residual_fraction)],
                fitted_components,
                scaled_noise / residual_fraction**2,
                functions,
            )
            scale_variances(fitted_components, factors)
            residual_fraction = float(np.clip(1 - weights @ curvature @ weights / n_rows, _MIN_RESIDUAL_FRACTION, 1.0))
            if abs(residual_fraction - previous) < _TOLERANCE:
                break
        weights = scale * weights[:, None]
        intercept = -(design.transpose_dot(np.ones((n_rows, 1))).T @ weights)[0] / n_rows
        return FitResult(weights, intercept, tuple(copy_components(fitted_components, variance)))


@dataclass(frozen=True, eq=False)
class AdditiveNumberSums:
    """Released sums of single columns times numbers.

    Attributes:
        table: The rows.
        columns: The bins of each column.
        design: These bins, of all rows.
        functions: For each column, the values (width, functions) of the functions that were summed; None for counts.
        sums: The released sums; the last one is that of a column of ones.
    """

    table: Table
    columns: Sequence[BinnedColumn]
    design: BinDesign
    functions: Sequence[Floats | None]
    sums: NoisySums

    @property
    def mean_and_variance(self) -> tuple[float, float]:
        """Estimates of the mean and the variance of all numbers from the sums."""
        shift = float(self.sums.released_sums[-1]) / max(1, self.sums.n_labels)
        low, high = float(self.sums.space.classes[0]), float(self.sums.space.classes[-1])
        mean = float(np.clip(self.sums.center + shift, low, high))
        max_variance = (high - low) ** 2 / 4
        return mean, float(
            np.clip(self.sums.mean_square - (mean - self.sums.center) ** 2, max_variance / 1_000, max_variance)
        )

    def fit(self, responses: NumericResponses | None = None) -> AdditiveNumberModel:
        """Fit the effects of all columns.

        Args:
            responses: Unbiased noisy numbers of the same rows, for a fit to both; None for the sums alone.

        Returns:
            The model, with the provenance of the sums and of the noisy numbers.
        """
        row_mask = self.sums.row_mask
        row_selection = slice(None) if row_mask is None else row_mask
        active_design = self.design if row_mask is None else self.design.select(row_mask)
        block_functions, n_rows = stack_functions(self.functions, self.design.widths), len(active_design)
        values, total = self.sums.released_sums[:-1, None], float(self.sums.released_sums[-1])
        sum_variance = self.sums.noise_deviation**2
        noise_covariance: Floats | float = sum_variance
        mean, variance = self.mean_and_variance
        if responses is not None:
            values_of_responses = (
                responses.unbiased_values(np.arange(responses.n_rows)[row_selection]) - self.sums.center
            )
            scatter = max(float((values_of_responses**2).mean()) - self.sums.mean_square, 1e-12)
            response_sums = active_design.transpose_dot(values_of_responses[:, None])
            gram = active_design.gram(np.ones(n_rows))
            if block_functions is not None:
                response_sums, gram = block_functions.T @ response_sums, block_functions.T @ gram @ block_functions
            total += sum_variance / (sum_variance + scatter * n_rows) * (float(values_of_responses.sum()) - total)
            values, noise_covariance = combine_estimates(values, sum_variance, response_sums, scatter * gram)
            mean = self.sums.center + total / n_rows
        bin_sizes = active_design.transpose_dot(np.ones((n_rows, 1)))
        values = values - (mean - self.sums.center) * (
            bin_sizes if block_functions is None else block_functions.T @ bin_sizes
        )
        prior = make_prior(self.design.widths, [column.n_ordered for column in self.columns])
        result = fit_number_sums(active_design, values, noise_covariance, variance, prior, functions=block_functions)
        terms = [
            Term((column,), result.weights[start : start + column.width])
            for column, start in zip(self.columns, self.design.starts[:-1], strict=True)
        ]
        explained = float((active_design.dot(result.weights) + result.intercept).var())
        residual_variance = max(variance - explained, _MIN_RESIDUAL_FRACTION * variance)
        model_fields = self.sums.space, Provenance.of(self.sums, responses), result.intercept + mean, tuple(terms)
        return AdditiveNumberModel(*model_fields, deviation=residual_variance**0.5)
