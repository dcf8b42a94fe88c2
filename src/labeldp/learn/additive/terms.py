"""The sums that an additive model rests on, and its fit to them and to noisy labels of the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import Provenance
from labeldp.data.tables import Table
from labeldp.learn.additive.bins import Column
from labeldp.learn.additive.design import BinDesign, Floats
from labeldp.learn.additive.fit import fit_block, fit_sums, prior_of
from labeldp.learn.additive.model import AdditiveModel, Term
from labeldp.learn.additive.sums import combined, consistent_sums, function_blocks, response_sums
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments


class CrossSums(NamedTuple):
    """Released counts of the cells of two columns.

    Attributes:
        columns: The two columns.
        cells: The cell of each row.
        counts: The noisy counts by label.
    """

    columns: tuple[Column, Column]
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
        counts: The released sums, with the rows of each class as the last one.
        crosses: The released counts of crosses.
    """

    table: Table
    columns: Sequence[Column]
    design: BinDesign
    functions: Sequence[Floats | None]
    counts: NoisyMoments
    crosses: list[CrossSums] = field(default_factory=list)

    @property
    def releases(self) -> list[Release]:
        """What was released, selections of crosses left out."""
        return [self.counts, *(cross.counts for cross in self.crosses)]

    def main_effects(self, responses: Release | None = None) -> tuple[AdditiveModel, Floats]:
        """Fit the effects of single columns.

        Args:
            responses: Noisy labels of the same rows, for a fit to both; None for the sums alone.

        Returns:
            The model, and the scores of all rows (rows, outputs).
        """
        active, blocks = self.counts.active, function_blocks(self.functions, self.design.widths)
        here = self.design if active is None else self.design.select(active)
        sums = consistent_sums(self.counts)
        totals, noise = sums.values[-1], np.float64(sums.noise)
        values: Floats = sums.values[:-1]
        covariance: Floats | float = sums.noise**2
        if responses is not None:
            found = response_sums(here, responses, self._rows)
            gram = here.gram(np.ones(len(here)))
            own, other = (found.values, gram) if blocks is None else (blocks.T @ found.values, blocks.T @ gram @ blocks)
            values, covariance = combined(values, sums.noise**2, own, found.noise**2 * other)
            weight = noise**2 / (noise**2 + found.noise**2 * len(here))
            totals = totals + weight * (found.values[: self.design.widths[0]].sum(axis=0) - totals)
        prior = prior_of(self.design.widths, [column.ordered for column in self.columns])
        totals = np.clip(totals, 0.5, len(here) - 0.5)
        fit = fit_sums(here, values, totals, covariance, prior, functions=blocks)
        terms = [
            Term((column,), fit.weights[start : start + column.width])
            for column, start in zip(self.columns, self.design.starts[:-1], strict=True)
        ]
        model = AdditiveModel(self.counts.space, Provenance.of(self.counts, responses), fit.intercept, tuple(terms))
        return model, fit.intercept + self.design.dot(fit.weights)

    def cross_effect(self, cross: CrossSums, scores: Floats, responses: Release | None = None) -> tuple[Term, Floats]:
        """Fit the effect of a cross to what a model so far leaves.

        Args:
            cross: The counts of its cells.
            scores: What the model gives to all rows, (rows, outputs).
            responses: Noisy labels of the same rows, likewise.

        Returns:
            The effect, and the scores of all rows with it.
        """
        cells, width = cross.cells[self._rows], cross.columns[0].width * cross.columns[1].width
        sums = consistent_sums(cross.counts)
        values, variance = sums.values, np.full((width, 1), sums.noise**2)
        if responses is not None:
            found = response_sums(BinDesign([cells], [width]), responses, self._rows)
            other = found.noise**2 * np.maximum(np.bincount(cells, minlength=width), 1e-9)[:, None]
            values = values + variance / (variance + other) * (found.values - values)
            variance = variance * other / (variance + other)
        weights, _ = fit_block(cells, width, values, variance, scores[self._rows])
        return Term(cross.columns, weights), scores + weights.take(cross.cells, axis=0)

    def fit(self, responses: Release | None = None) -> AdditiveModel:
        """Fit all effects, one after another.

        Args:
            responses: Noisy labels of the same rows, for a fit to both; None for the sums alone.

        Returns:
            The model. It rests on the sums, and on the noisy labels if there are any.
        """
        model, scores = self.main_effects(responses)
        for cross in self.crosses:
            term, scores = self.cross_effect(cross, scores, responses)
            model = model.with_terms([term], Provenance.of(model, cross.counts))
        return model

    @property
    def _rows(self) -> NDArray[np.bool_] | slice:
        return slice(None) if self.counts.active is None else self.counts.active
