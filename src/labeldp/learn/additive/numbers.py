"""Additive regression from noisy sums: as `fit` does it, where the curvature does not depend on the weights.

Let A be a public matrix, y the numbers less their mean and z = A'y + e the released sums. With scatter v of numbers
around the model, H = A'A / v and z / v take the places of the curvature and of the residual sums, and s^2 / v^2 that of
the variance of the noise. v is what the fitted model leaves of the variance of all numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from labeldp.accounting.lineage import Provenance
from labeldp.data.tables import Table
from labeldp.learn.additive.bins import Column
from labeldp.learn.additive.design import BinDesign, Design, Floats
from labeldp.learn.additive.fit import Component, Fit, copies, curvature_of, posterior, prior_of, with_changes
from labeldp.learn.additive.model import AdditiveNumberModel, Term
from labeldp.learn.additive.sums import combined, function_blocks
from labeldp.releases.moments import NoisySums
from labeldp.releases.numbers import NumericResponses

_ROUNDS = 40
_LEAST_LEFT = 0.02  # of the variance of all numbers: what a model leaves at least
_SETTLED = 1e-3  # change of the scatter that ends the search


def fit_numbers(
    design: Design,
    sums: Floats,
    noise: float | Floats,
    variance: float,
    components: Sequence[Component],
    *,
    functions: Floats | None = None,
) -> Fit:
    """Fit a linear model of public columns to noisy sums of numbers.

    Args:
        design: The public matrix A, of the rows that were summed.
        sums: Noisy A'y, (columns, 1), or F'A'y with `functions`; y are numbers less their mean, or what another model
            leaves of them.
        noise: The variance of the noise in each sum, or its covariance (sums, sums).
        variance: The mean of y squared.
        components: The prior. Their variances are where the search begins, as shares of `variance`.
        functions: F, (columns, functions); None where every column was summed.

    Returns:
        The fitted weights; their mean over the rows is the negative of the intercept.
    """
    with threadpool_limits(1, user_api="blas"):
        rows, unit = len(design), variance**0.5  # numbers are fitted in deviations, whatever their unit
        parts, curvature, left = copies(components), curvature_of(design, np.ones(rows)), 1.0
        wanted, spread = sums[:, 0] / unit, noise / variance
        for _ in range(_ROUNDS):
            before = left
            (weights,), changes = posterior([(curvature / left, wanted / left)], parts, spread / left**2, functions)
            with_changes(parts, changes)
            left = float(np.clip(1 - weights @ curvature @ weights / rows, _LEAST_LEFT, 1.0))
            if abs(left - before) < _SETTLED:
                break
        weights = unit * weights[:, None]
        intercept = -(design.sums(np.ones((rows, 1))).T @ weights)[0] / rows
        return Fit(weights, intercept, tuple(copies(parts, variance)))


@dataclass(frozen=True, eq=False)
class NumberSums:
    """Released sums of single columns times numbers.

    Attributes:
        table: The rows.
        columns: The bins of each column.
        design: These bins, of all rows.
        functions: For each column, the values (width, functions) of the functions that were summed; None for counts.
        sums: The released sums, with that of a column of ones as the last one.
    """

    table: Table
    columns: Sequence[Column]
    design: BinDesign
    functions: Sequence[Floats | None]
    sums: NoisySums

    @property
    def distribution(self) -> tuple[float, float]:
        """Mean and variance of all numbers, as far as the sums tell them."""
        away = float(self.sums.released_sums[-1]) / max(1, self.sums.n_labels)
        low, high = float(self.sums.space.classes[0]), float(self.sums.space.classes[-1])
        mean = float(np.clip(self.sums.center + away, low, high))
        most = (high - low) ** 2 / 4
        return mean, float(np.clip(self.sums.mean_square - (mean - self.sums.center) ** 2, most / 1_000, most))

    def fit(self, responses: NumericResponses | None = None) -> AdditiveNumberModel:
        """Fit the effects of all columns.

        Args:
            responses: Noisy numbers of the same rows whose mean is the label, for a fit to both; None for the sums
                alone.

        Returns:
            The model. It rests on the sums, and on the noisy numbers if there are any.
        """
        active = self.sums.active
        rows = slice(None) if active is None else active
        here = self.design if active is None else self.design.select(active)
        blocks, count = function_blocks(self.functions, self.design.widths), len(here)
        values, total = self.sums.released_sums[:-1, None], float(self.sums.released_sums[-1])
        own_noise = self.sums.noise_deviation**2
        noise: Floats | float = own_noise
        mean, variance = self.distribution
        if responses is not None:
            found = responses.unbiased_values(np.arange(responses.rows)[rows]) - self.sums.center
            scatter = max(float((found**2).mean()) - self.sums.mean_square, 1e-12)
            own, gram = here.sums(found[:, None]), here.gram(np.ones(count))
            if blocks is not None:
                own, gram = blocks.T @ own, blocks.T @ gram @ blocks
            total += own_noise / (own_noise + scatter * count) * (float(found.sum()) - total)
            values, noise = combined(values, own_noise, own, scatter * gram)
            mean = self.sums.center + total / count
        sizes = here.sums(np.ones((count, 1)))
        values = values - (mean - self.sums.center) * (sizes if blocks is None else blocks.T @ sizes)
        prior = prior_of(self.design.widths, [column.ordered for column in self.columns])
        fit = fit_numbers(here, values, noise, variance, prior, functions=blocks)
        terms = [
            Term((column,), fit.weights[start : start + column.width])
            for column, start in zip(self.columns, self.design.starts[:-1], strict=True)
        ]
        explained = float((here.dot(fit.weights) + fit.intercept).var())
        left = max(variance - explained, _LEAST_LEFT * variance)
        known = self.sums.space, Provenance.of(self.sums, responses), fit.intercept + mean, tuple(terms)
        return AdditiveNumberModel(*known, deviation=left**0.5)
