"""The released sums of an additive model, and its fit to them and to noisy labels of the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import Provenance
from labeldp.data.tables import Table
from labeldp.learn.additive.bins import BinnedColumn
from labeldp.learn.additive.design import BinDesign, Floats
from labeldp.learn.additive.fit import fit_block, fit_sums, make_prior
from labeldp.learn.additive.model import AdditiveModel, Term
from labeldp.learn.additive.sums import (
    combine_estimates,
    compute_consistent_sums,
    estimate_response_sums,
    stack_functions,
)
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments


class CrossSums(NamedTuple):
    """Released counts of the cells of two columns.

    Attributes:
        columns: The two columns.
        cells: The cell of each row.
        counts: The noisy counts by label.
    """

    columns: tuple[BinnedColumn, BinnedColumn]
    cells: NDArray[np.integer]
    counts: NoisyMoments


@dataclass(frozen=True, eq=False)
class AdditiveSums:
    """Released sums of single columns and of crosses.

    Attributes:
        table: The rows.
        columns: The bins of each column.
        design: These bins, of all rows.
        functions: For each column, the values (width, functions) of the functions that were summed; None for counts.
        counts: The released sums; the last ones are the numbers of rows of each class.
        crosses: The released counts of crosses.
    """

    table: Table
    columns: Sequence[BinnedColumn]
    design: BinDesign
    functions: Sequence[Floats | None]
    counts: NoisyMoments
    crosses: list[CrossSums] = field(default_factory=list)

    @property
    def releases(self) -> list[Release]:
        """The released sums and counts, without selections of crosses."""
        return [self.counts, *(cross.counts for cross in self.crosses)]

    def fit_main_effects(self, responses: Release | None = None) -> tuple[AdditiveModel, Floats]:
        """Fit the effects of single columns.

        Args:
            responses: Noisy labels of the same rows, for a fit to both; None for the sums alone.

        Returns:
            The model, and the scores of all rows (rows, outputs).
        """
        row_mask, block_functions = self.counts.row_mask, stack_functions(self.functions, self.design.widths)
        active_design = self.design if row_mask is None else self.design.select(row_mask)
        sums = compute_consistent_sums(self.counts)
        totals, noise_std = sums.values[-1], np.float64(sums.noise_std)
        values: Floats = sums.values[:-1]
        covariance: Floats | float = sums.noise_std**2
        if responses is not None:
            response_sums = estimate_response_sums(active_design, responses, self._row_selection)
            gram = active_design.gram(np.ones(len(active_design)))
            other_values, other_covariance = (
                (response_sums.values, gram)
                if block_functions is None
                else (block_functions.T @ response_sums.values, block_functions.T @ gram @ block_functions)
            )
            values, covariance = combine_estimates(
                values, sums.noise_std**2, other_values, response_sums.noise_std**2 * other_covariance
            )
            weight = noise_std**2 / (noise_std**2 + response_sums.noise_std**2 * len(active_design))
            totals = totals + weight * (response_sums.values[: self.design.widths[0]].sum(axis=0) - totals)
        prior = make_prior(self.design.widths, [column.n_ordered for column in self.columns])
        totals = np.clip(totals, 0.5, len(active_design) - 0.5)
        result = fit_sums(active_design, values, totals, covariance, prior, functions=block_functions)
        terms = [
            Term((column,), result.weights[start : start + column.width])
            for column, start in zip(self.columns, self.design.starts[:-1], strict=True)
        ]
        model = AdditiveModel(self.counts.space, Provenance.of(self.counts, responses), result.intercept, tuple(terms))
        return model, result.intercept + self.design.dot(result.weights)

    def fit_cross_effect(
        self, cross: CrossSums, scores: Floats, responses: Release | None = None
    ) -> tuple[Term, Floats]:
        """Fit the effect of a cross, with the scores of a model as offset.

        Args:
            cross: The counts of its cells.
            scores: The scores of the model for all rows, (rows, outputs).
            responses: Noisy labels of the same rows, for a fit to both; None for the counts alone.

        Returns:
            The effect, and the scores of all rows with it.
        """
        cells, width = cross.cells[self._row_selection], cross.columns[0].width * cross.columns[1].width
        sums = compute_consistent_sums(cross.counts)
        values, variance = sums.values, np.full((width, 1), sums.noise_std**2)
        if responses is not None:
            response_sums = estimate_response_sums(BinDesign([cells], [width]), responses, self._row_selection)
            response_variance = (
                response_sums.noise_std**2 * np.maximum(np.bincount(cells, minlength=width), 1e-9)[:, None]
            )
            values = values + variance / (variance + response_variance) * (response_sums.values - values)
            variance = variance * response_variance / (variance + response_variance)
        weights, _ = fit_block(cells, width, values, variance, scores[self._row_selection])
        return Term(cross.columns, weights), scores + weights.take(cross.cells, axis=0)

    def fit(self, responses: Release | None = None) -> AdditiveModel:
        """Fit all effects, one after another.

        Args:
            responses: Noisy labels of the same rows, for a fit to both; None for the sums alone.

        Returns:
            The model, with the provenance of the sums and of the noisy labels.
        """
        model, scores = self.fit_main_effects(responses)
        for cross in self.crosses:
            term, scores = self.fit_cross_effect(cross, scores, responses)
            model = model.with_terms([term], Provenance.of(model, cross.counts))
        return model

    @property
    def _row_selection(self) -> NDArray[np.bool_] | slice:
        return slice(None) if self.counts.row_mask is None else self.counts.row_mask
