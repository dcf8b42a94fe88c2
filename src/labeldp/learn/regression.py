"""Expectation maximization for releases of numbers, with any scikit-learn regressor that takes sample weights."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.data.label_bins import Floats, LossName
from labeldp.learn.density import Density, check_loss, label_grid
from labeldp.learn.estimator_files import read_estimator, serialize_estimator
from labeldp.learn.prebin import limit_threads, prebin
from labeldp.learn.predictor import not_a_model_error, read_metadata, write_metadata
from labeldp.learn.short_training import em_rounds, limit_iterations
from labeldp.learn.sklearn_learner import StandardizedFeatures, standardized_matrix
from labeldp.releases.base import Release

_BLOCK_ENTRIES = 1 << 22  # entries of evidence (rows times values) that are in memory at once
# Least distance for weights 1 / distance, as a share of the scale. Smaller distances would fix a fit at its values.
_MIN_DISTANCE = 0.25
_TOLERANCE = 1e-3  # change of predictions, as a share of the range, at which the fit has converged
_MIN_RESIDUAL_VARIANCE = 0.05  # least residual variance, as a share of the variance of all labels


@dataclass(frozen=True)
class TargetPrior:
    """A prior for the targets.

    Attributes:
        center: The mean of all labels.
        deviation: The standard deviation of all labels.
        weight: The number of rows that the prior counts as.
    """

    center: float
    deviation: float
    weight: float = 0.0


@dataclass(frozen=True)
class Regression:
    """Alternate between posteriors of labels (evidence times the density around predictions) and fits to their means.

    For absolute loss, each value of a posterior is weighted by 1 / distance. The weighted squared error is an upper
    bound of the absolute error, so the fit is a step towards the median.

    The initial prediction is one number for all rows: the center of `target_prior`, or the middle of the range. With
    little evidence, predictions stay near it. The target prior also adds a row of average features with its weight. It
    determines the residual variance, as the variance of all labels less that of predictions. Without it, the evidence
    determines the residual variance. This estimate is poor for few bins, which hardly distinguish a wide density around
    distant predictions from a narrow one around near predictions.

    Attributes:
        regressor: An unfitted scikit-learn regressor that takes sample weights.
        loss: "squared", "absolute" or "poisson".
        max_rounds: The most rounds.
        target_prior: A prior for the targets, or None.
        standardized: Standardized rows, which `prepare` computes.
    """

    regressor: Any
    loss: LossName = "squared"
    max_rounds: int = 50
    target_prior: TargetPrior | None = None
    standardized: StandardizedFeatures | None = field(default=None, repr=False, compare=False)

    def prepare(self, features: Features, row_mask: NDArray[np.bool_]) -> "Regression":
        """Return this learner with standardized features; `row_mask` marks the rows of the training."""
        return replace(self, standardized=StandardizedFeatures.of(features, self.regressor, row_mask))

    def fit(self, features: Features, release: Release, start: Any = None) -> "RegressionModel":
        """Fit on the released rows. The initial prediction is that of `target_prior`: `start` is not used."""
        if len(features) != release.n_rows:
            raise InputError(f"There are {len(features)} rows of features and {release.n_rows} in the release.")
        check_loss(self.loss, release.space)
        if release.kind == "prior":
            raise InputError(f"{release.mechanism} has no evidence about single rows: learn from a release of labels.")
        row_ids = np.arange(release.n_rows) if release.row_mask is None else np.flatnonzero(release.row_mask)
        if not row_ids.size:
            raise InputError("The release covers no row: there is nothing to learn from.")
        standardized = self._standardize(features)
        X = prebin(standardized.X[row_ids], self.regressor)
        return _make_model(release, *self._fit_em(X, release, row_ids), self.loss, standardized)

    def fit_values(self, features: Features, release: Release, values: Floats) -> "RegressionModel":
        """Fit one number for each row as if it were the label, without a noise model; rows of NaN are left out."""
        check_loss(self.loss, release.space)
        row_ids = np.flatnonzero(~np.isnan(values))
        standardized = self._standardize(features)
        X = standardized.X
        with limit_threads(X):
            fitted = limit_iterations(clone(self.regressor)).fit(X[row_ids], values[row_ids])
        predictions = fitted.predict(X[row_ids])
        scale = _density_scale(
            self.loss, float(((predictions - values[row_ids]) ** 2).mean()), predictions, label_grid(release.space)
        )
        return _make_model(release, fitted, scale, self.loss, standardized)

    def _standardize(self, features: Features) -> StandardizedFeatures:
        return (
            self.standardized
            if self.standardized is not None and self.standardized.features is features
            else StandardizedFeatures.of(features)
        )

    def _fit_em(self, X: NDArray[np.float32], release: Release, row_ids: NDArray[np.int64]) -> tuple[Any, float]:
        grid = label_grid(release.space)
        value_range = grid[-1] - grid[0]
        prior = self.target_prior or TargetPrior((grid[0] + grid[-1]) / 2, value_range / 12**0.5)
        centers = np.full(len(X), prior.center)
        residual_variance = prior.deviation**2  # the variance of labels around predictions
        X = np.concatenate([X, np.zeros((1, X.shape[1]), X.dtype)])
        row_selection = slice(None) if prior.weight else slice(-1)
        fitted: Any = None
        for _ in range(em_rounds(self.max_rounds)):
            density = Density(grid, self.loss, _density_scale(self.loss, residual_variance, centers, grid))
            target, weight, ratio = self._expected_targets(density, centers, release, row_ids)
            target, weight = np.append(target, prior.center), np.append(weight / weight.mean(), prior.weight)
            with limit_threads(X):
                fitted = limit_iterations(clone(self.regressor)).fit(
                    X[row_selection], target[row_selection], sample_weight=weight[row_selection]
                )
            previous, centers = centers, np.clip(fitted.predict(X[:-1]), grid[0], grid[-1])
            residual_variance = (
                residual_variance * ratio if self.target_prior is None else prior.deviation**2 - float(centers.var())
            )
            residual_variance = float(
                np.clip(residual_variance, prior.deviation**2 * _MIN_RESIDUAL_VARIANCE, value_range**2)
            )
            if np.abs(centers - previous).max() < _TOLERANCE * value_range:
                break
        return fitted, _density_scale(self.loss, residual_variance, centers, grid)

    def _expected_targets(
        self, density: Density, centers: Floats, release: Release, row_ids: NDArray[np.int64]
    ) -> tuple[Floats, Floats, float]:
        """Return target and weight of each row, and the ratio of the posterior variance to that of the density."""
        targets, weights, expected, modeled = [], [], 0.0, 0.0
        for block in _blocks(row_ids.size, density.grid.size):
            model_probabilities = density.probabilities(centers[block])
            evidence = release.log_evidence(row_ids[block]).astype(np.float64)
            posterior = model_probabilities * np.exp(evidence - evidence.max(axis=1, keepdims=True))
            posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), 1e-300)
            distance = np.abs(density.grid - centers[block][:, None])
            expected += float((posterior * distance**2).sum())
            modeled += float((model_probabilities * distance**2).sum())
            if self.loss == "absolute":
                posterior = posterior / np.maximum(distance, _MIN_DISTANCE * density.scale)
            weights.append(posterior.sum(axis=1))
            targets.append(posterior @ density.grid / np.maximum(weights[-1], 1e-300))
        return np.concatenate(targets), np.concatenate(weights), expected / max(modeled, 1e-300)


def _density_scale(loss: LossName, variance: float, centers: Floats, grid: Floats) -> float:
    """Return the scale of a density with this variance, which is at least half a step of the grid.

    The variance is 2 scale^2 for a Laplace distribution, and scale^2 times the mean for counts.
    """
    step = grid[1] - grid[0]
    if loss == "poisson":
        return max(float(np.sqrt(variance / max(float(np.mean(centers)), step))), 0.3)
    return max(float(np.sqrt(variance / 2 if loss == "absolute" else variance)), step / 2)


def _make_model(
    release: Release, fitted: Any, scale: float, loss: LossName, standardized: StandardizedFeatures
) -> "RegressionModel":
    return RegressionModel(
        release.space, Provenance.of(release), fitted, loss, scale, standardized.mean, standardized.deviation
    )


def _blocks(n_rows: int, n_values: int) -> Iterator[slice]:
    size = max(1, _BLOCK_ENTRIES // n_values)
    return (slice(start, start + size) for start in range(0, n_rows, size))


@dataclass(frozen=True, eq=False)
class RegressionModel(HasProvenance):
    """A fitted scikit-learn regressor with the moments of its features, and the scale of its residuals."""

    space: LabelSpace
    provenance: Provenance
    regressor: Any
    loss: LossName
    scale: float
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each declared number for each row."""
        return Density(label_grid(self.space), self.loss, self.scale).probabilities(self.predict(features))

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the expected label of each row, or its median for absolute loss."""
        grid = label_grid(self.space)
        return np.clip(
            self.regressor.predict(standardized_matrix(features, self.mean, self.deviation)), grid[0], grid[-1]
        )

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder, with the regressor as a skops file and not as a pickle."""
        serialized = serialize_estimator(self.regressor)
        with atomic_write(Path(folder)) as partial:
            partial.mkdir()
            write_metadata(partial, self, {"kind": "numbers", "loss": self.loss, "scale": self.scale})
            np.savez(partial / "arrays.npz", mean=self.mean, deviation=self.deviation)
            (partial / "regressor.skops").write_bytes(serialized)

    @classmethod
    def load(cls, folder: str | Path) -> "RegressionModel":
        """Read a model that `save` wrote; only scikit-learn's own types are loaded, so a file cannot run code."""
        metadata = read_metadata(folder)
        try:
            regressor = read_estimator(Path(folder) / "regressor.skops")
            with np.load(Path(folder) / "arrays.npz") as arrays:
                moments = arrays["mean"], arrays["deviation"]
            regressor_fields = regressor, metadata["loss"], float(metadata["scale"])
        except Exception:
            raise not_a_model_error(folder) from None
        return cls(metadata["space"], metadata["provenance"], *regressor_fields, *moments)
