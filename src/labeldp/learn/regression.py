"""Any scikit-learn regressor that takes sample weights, trained on a release of numbers by expectation maximisation."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import written_whole
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.data.label_bins import Floats, LossName
from labeldp.learn.classical import Standardised, matrix
from labeldp.learn.density import Density, check_loss, grid_of
from labeldp.learn.effort import brief, rounds
from labeldp.learn.estimator_files import read_estimator, written_estimator
from labeldp.learn.prebin import coarse, threads_that_pay
from labeldp.learn.predictor import not_a_model, read_facts, write_facts
from labeldp.releases.base import Release

_BLOCK = 1 << 22  # numbers of evidence that are in memory at once
_NEAR = 0.25  # of the scale: values nearer than this weigh alike, or a fit would never leave where it is
_SETTLED = 1e-3  # of the range: predictions that move less have arrived
_LEAST_LEFT = 0.05  # of the variance of all labels: what predictions leave open at least


@dataclass(frozen=True)
class Anchor:
    """What is known beforehand: mean and deviation of all labels, and how many rows that knowledge is worth."""

    centre: float
    deviation: float
    weight: float = 0.0


@dataclass(frozen=True)
class Regression:
    """Alternate between what each label may be (evidence times the density around the prediction) and a fit to that.

    A fit takes the mean of what the label may be. For absolute loss each possible value weighs by one over its
    distance, which makes the fit a step towards the median: the weighted mean bounds the sum of distances from above.

    The first prediction is one number for all rows, that of `anchor` or the middle of the range. From there the fit
    grows as far as the evidence carries it: of little evidence, little is learnt. The anchor stays as a row of average
    features that weighs so many rows. It also says how wide the density is: the variance of all labels less that of the
    predictions. Without an anchor the evidence decides, which few bins let do badly: they hardly tell a wide density
    around far predictions from a narrow one around near ones.
    """

    regressor: Any
    loss: LossName = "squared"
    rounds: int = 50
    anchor: Anchor | None = None
    seen: Standardised | None = field(default=None, repr=False, compare=False)

    def prepare(self, features: Features, rows: NDArray[np.bool_]) -> "Regression":
        """Return this learner with all that it needs of the features alone, `rows` of which it will be trained on."""
        return replace(self, seen=Standardised.of(features, self.regressor, rows))

    def fit(self, features: Features, release: Release, start: Any = None) -> "NumberModel":
        """Fit on the rows that were released. It begins from the anchor: a `start` is not used."""
        if len(features) != release.rows:
            raise InputError(f"There are {len(features)} rows of features and {release.rows} in the release.")
        check_loss(self.loss, release.space)
        if release.kind == "prior":
            raise InputError(f"{release.mechanism} says nothing of single rows: learn from a release of each label.")
        rows = np.flatnonzero(release._is_active(np.arange(release.rows)))
        if not rows.size:
            raise InputError("The release speaks of no row: there is nothing to learn from.")
        seen = self._see(features)
        x = coarse(seen.rows[rows], self.regressor)
        return _model(release, *self._alternate(x, release, rows), self.loss, seen)

    def fit_values(self, features: Features, release: Release, values: Floats) -> "NumberModel":
        """Fit one number for each row as if it were the label, as who knows nothing of noise would; NaN is left out."""
        check_loss(self.loss, release.space)
        rows = np.flatnonzero(~np.isnan(values))
        seen = self._see(features)
        x = seen.rows
        with threads_that_pay(x):
            fitted = brief(clone(self.regressor)).fit(x[rows], values[rows])
        predicted = fitted.predict(x[rows])
        scale = _scale(self.loss, float(((predicted - values[rows]) ** 2).mean()), predicted, grid_of(release.space))
        return _model(release, fitted, scale, self.loss, seen)

    def _see(self, features: Features) -> Standardised:
        return self.seen if self.seen is not None and self.seen.features is features else Standardised.of(features)

    def _alternate(self, x: NDArray[np.float32], release: Release, rows: NDArray[np.int64]) -> tuple[Any, float]:
        grid = grid_of(release.space)
        width = grid[-1] - grid[0]
        known = self.anchor or Anchor((grid[0] + grid[-1]) / 2, width / 12**0.5)
        centres = np.full(len(x), known.centre)
        left = known.deviation**2  # the variance of labels around predictions
        x = np.concatenate([x, np.zeros((1, x.shape[1]), x.dtype)])
        used = slice(None) if known.weight else slice(-1)
        fitted: Any = None
        for _ in range(rounds(self.rounds)):
            density = Density(grid, self.loss, _scale(self.loss, left, centres, grid))
            target, weight, ratio = self._expect(density, centres, release, rows)
            target, weight = np.append(target, known.centre), np.append(weight / weight.mean(), known.weight)
            with threads_that_pay(x):
                fitted = brief(clone(self.regressor)).fit(x[used], target[used], sample_weight=weight[used])
            before, centres = centres, np.clip(fitted.predict(x[:-1]), grid[0], grid[-1])
            left = left * ratio if self.anchor is None else known.deviation**2 - float(centres.var())
            left = float(np.clip(left, known.deviation**2 * _LEAST_LEFT, width**2))
            if np.abs(centres - before).max() < _SETTLED * width:
                break
        return fitted, _scale(self.loss, left, centres, grid)

    def _expect(
        self, density: Density, centres: Floats, release: Release, rows: NDArray[np.int64]
    ) -> tuple[Floats, Floats, float]:
        """Return target and weight of each row, and the variance that is expected, as a share of the density's own."""
        targets, weights, expected, modelled = [], [], 0.0, 0.0
        for part in _blocks(rows.size, density.grid.size):
            model = density.chances(centres[part])
            evidence = release.log_evidence(rows[part]).astype(np.float64)
            chances = model * np.exp(evidence - evidence.max(axis=1, keepdims=True))
            chances /= np.maximum(chances.sum(axis=1, keepdims=True), 1e-300)
            away = np.abs(density.grid - centres[part][:, None])
            expected, modelled = expected + float((chances * away**2).sum()), modelled + float((model * away**2).sum())
            if self.loss == "absolute":
                chances = chances / np.maximum(away, _NEAR * density.scale)
            weights.append(chances.sum(axis=1))
            targets.append(chances @ density.grid / np.maximum(weights[-1], 1e-300))
        return np.concatenate(targets), np.concatenate(weights), expected / max(modelled, 1e-300)


def _scale(loss: LossName, variance: float, centres: Floats, grid: Floats) -> float:
    """Return the scale of a density with this variance: a Laplace law has twice its square, counts that times the mean.

    Below half a step there is nothing to tell.
    """
    step = grid[1] - grid[0]
    if loss == "poisson":
        return max(float(np.sqrt(variance / max(float(np.mean(centres)), step))), 0.3)
    return max(float(np.sqrt(variance / 2 if loss == "absolute" else variance)), step / 2)


def _model(release: Release, fitted: Any, scale: float, loss: LossName, seen: Standardised) -> "NumberModel":
    return NumberModel(release.space, Provenance.of(release), fitted, loss, scale, seen.mean, seen.deviation)


def _blocks(rows: int, values: int) -> Iterator[slice]:
    size = max(1, _BLOCK // values)
    return (slice(start, start + size) for start in range(0, rows, size))


@dataclass(frozen=True, eq=False)
class NumberModel(HasProvenance):
    """A fitted scikit-learn regressor with the moments of its features, and the scale of what it leaves open."""

    space: LabelSpace
    provenance: Provenance
    regressor: Any
    loss: LossName
    scale: float
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each declared number for each row."""
        return Density(grid_of(self.space), self.loss, self.scale).chances(self.predict(features))

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the mean of what each label may be, or its median for absolute loss."""
        grid = grid_of(self.space)
        return np.clip(self.regressor.predict(matrix(features, self.mean, self.deviation)), grid[0], grid[-1])

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder: by skops, of scikit-learn's own types, never as a pickle."""
        written = written_estimator(self.regressor)
        with written_whole(Path(folder)) as partial:
            partial.mkdir()
            write_facts(partial, self, {"kind": "numbers", "loss": self.loss, "scale": self.scale})
            np.savez(partial / "arrays.npz", mean=self.mean, deviation=self.deviation)
            (partial / "regressor.skops").write_bytes(written)

    @classmethod
    def load(cls, folder: str | Path) -> "NumberModel":
        """Read a model that `save` wrote, of scikit-learn's own types only: nothing that a file could make run."""
        facts = read_facts(folder)
        try:
            regressor = read_estimator(Path(folder) / "regressor.skops")
            with np.load(Path(folder) / "arrays.npz") as arrays:
                moments = arrays["mean"], arrays["deviation"]
            own = regressor, facts["loss"], float(facts["scale"])
        except Exception:
            raise not_a_model(folder) from None
        return cls(facts["space"], facts["provenance"], *own, *moments)
