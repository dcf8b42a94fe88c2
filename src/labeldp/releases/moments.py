"""Releases of noisy label moments A'Y for a public matrix A."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array, issparse
from scipy.special import expit, logit

from labeldp.core.errors import InputError
from labeldp.releases.base import Arrays, Release

Matrix: TypeAlias = NDArray[np.floating] | csr_array

_BLOCK = 1 << 16  # rows of A that are projected at once
_MAX_GRAM_COLUMNS = 4096  # columns up to which A'A is computed if it was not stored
_NEWTON_STEPS = 60
# The prior precision of logistic weights, in standardized columns.
_PRIOR_PRECISION = 0.01


@dataclass(frozen=True, eq=False, kw_only=True)
class _QueryRelease(Release):
    """Sums over rows of a public matrix A, and the public A'A.

    A itself is public and not stored; the mechanism provides it, or `with_query` after loading. A'A is stored for a
    dense A; for a sparse one it is computed from A at first use.
    """

    kind: ClassVar[Literal["likelihood", "prior"]] = "prior"

    stored_gram: NDArray[np.float64] | None = None
    grid_scale: float  # grid steps in one unit of A
    sigma: float  # noise, in grid steps
    query: Matrix | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The public matrix can be as large as all features, and neither a pickled model nor a stored release needs it.
        return self.__dict__ | {"query": None}

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """The number of columns of A."""

    @cached_property
    def gram(self) -> NDArray[np.float64]:
        """A'A over the rows that were summed, as stored or computed from A."""
        return self._compute_gram() if self.stored_gram is None else self.stored_gram

    def _compute_gram(self) -> NDArray[np.float64]:
        raise InputError("A'A of a sparse A is not computed for numbers: fit a model to the sums themselves.")

    def with_query(self, query: Matrix) -> Self:
        """Return the release with the public matrix A, so that rows can be scored."""
        query = csr_array(query) if issparse(query) else np.asarray(query)
        if query.shape != (self.n_rows, self.n_columns):
            raise InputError(f"The query must have {self.n_rows} rows and {self.n_columns} columns.")
        return replace(self, query=query)

    def _query_rows(self, row_ids: NDArray[np.int64]) -> Any:
        """Return rows of A in float64, sparse if A is."""
        if self.query is None:
            raise InputError("The public matrix A is not stored with its moments: give it back by with_query(A).")
        return self.query[row_ids].astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyMoments(_QueryRelease):
    """A'Y (columns of A, classes) on an integer grid plus noise, and the public A'A and A'1.

    The prior of a row is a linear model fitted to the moments: ridge regression whose penalty follows from the
    known noise and from the marginal likelihood of the moments.
    """

    moments: NDArray[np.int64]
    totals: NDArray[np.float64]

    def arrays(self) -> Arrays:
        """Return the noisy moments and the public sums."""
        arrays = {"moments": self.moments, "totals": self.totals}
        return arrays if self.stored_gram is None else arrays | {"gram": self.stored_gram}

    @property
    def n_columns(self) -> int:
        """The number of columns of A."""
        return len(self.moments)

    def _compute_gram(self) -> NDArray[np.float64]:
        """Compute A'A, after checking that the columns of A have the totals of the summed matrix."""
        if self.n_columns > _MAX_GRAM_COLUMNS:
            raise InputError(
                f"A'A of more than {_MAX_GRAM_COLUMNS:,} columns is not computed: fit a model to the sums themselves."
            )
        grid_matrix = csr_array(
            self._query_rows(np.arange(self.n_rows) if self.row_mask is None else np.flatnonzero(self.row_mask))
        )
        grid_matrix.sum_duplicates()
        grid_matrix.data = np.rint(grid_matrix.data * self.grid_scale)
        if not np.array_equal(grid_matrix.sum(axis=0) / self.grid_scale, self.totals):
            raise InputError("A'A needs the query of these sums and every row that was summed: read it before keep.")
        return np.asarray((grid_matrix.T @ grid_matrix).toarray() / self.grid_scale**2)

    @cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """The fitted linear model: A @ coefficients estimates the probability of each class."""
        directions, gain = self._ridge_fit
        return directions @ (gain[:, None] * (directions.T @ self._projected_moments))

    @cached_property
    def scoring_weights(self) -> NDArray[np.float64]:
        """Weights W for which `to_probabilities` of A @ W are class probabilities.

        For several classes they are those of the linear model. For two classes they are the log-odds of a logistic
        model, because a linear model of a rare class hardly ever predicts a probability above one half. The sums A'Y
        are sufficient for logistic regression. It has two columns here: the direction of the linear model, and the
        most constant direction as an intercept. It is fitted to the shrunken sums of the linear model in both.
        """
        if len(self.space) != 2:
            return self.coefficients
        constant = np.linalg.lstsq(self.gram, self.totals, rcond=1e-9)[0]
        direction = self.coefficients[:, 1] - self.coefficients[:, 0]
        pair = np.stack([constant, direction], axis=1)
        row_ids = np.arange(self.n_rows) if self.row_mask is None else np.flatnonzero(self.row_mask)
        projections = np.concatenate(
            [self._query_rows(id_block) @ pair for id_block in np.array_split(row_ids, 1 + len(row_ids) // _BLOCK)]
        )
        # The sums of both classes add up to the public totals.
        class_sums = pair.T @ (self.totals + self.gram @ direction) / 2
        class_sums[0] = np.clip(class_sums[0], 0.5, len(row_ids) - 0.5)  # rows of the second class
        return (pair @ fit_log_odds(projections, class_sums))[:, None]

    @cached_property
    def mean_score(self) -> float:
        """An estimate of the linear model's mean score of the true class, over the rows that were summed.

        It is linear in the labels, so the sums determine it. The bias from fitting the model to the same noise is
        subtracted.
        """
        noise_bias = (len(self.space) - 1) * (self.sigma / self.grid_scale) ** 2 * self._ridge_fit[1].sum()
        n_summed = self.n_rows if self.row_mask is None else int(self.row_mask.sum())
        return float(((self.coefficients * self._projected_moments).sum() - noise_bias) / n_summed)

    @cached_property
    def _projected_moments(self) -> NDArray[np.float64]:
        """A'Y projected on the matrices whose columns add up to the public A'1, which removes part of the noise."""
        z = self.moments / self.grid_scale
        z -= (z.sum(axis=1) - self.totals)[:, None] / len(self.space)
        return z

    @cached_property
    def _ridge_fit(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The eigenvectors of A'A, and the factor by which ridge regression multiplies the moments in each."""
        n_classes = len(self.space)
        eigenvalues, directions = np.linalg.eigh(self.gram)
        eigenvalues = np.maximum(eigenvalues, 0)
        z = directions.T @ self._projected_moments
        # In each direction z = eigenvalue * b + (label variance) + (privacy noise), with b ~ N(0, prior variance).
        noise_variance = eigenvalues * (1 - 1 / n_classes) / n_classes + (self.sigma / self.grid_scale) ** 2

        def negative_log_likelihood(log_prior_variance: float) -> float:
            variance = np.exp(log_prior_variance) * eigenvalues**2 + noise_variance
            return float(n_classes * np.log(variance).sum() + ((z**2).sum(axis=1) / variance).sum())

        prior_variance = np.exp(minimize_scalar(negative_log_likelihood, bounds=(-30, 30), method="bounded").x)
        return directions, prior_variance * eigenvalues / (prior_variance * eigenvalues**2 + noise_variance)

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        # Less confident than `scoring_weights`: mechanisms release nothing about rows of which a prior is certain.
        return np.log(to_probabilities(self._query_rows(row_ids) @ self.coefficients))


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisySums(_QueryRelease):
    """A'c on an integer grid, then the sum of squares of c, plus noise.

    c holds the labels in half steps from the center of the range. The prior of a row is normal. Its mean is that of a
    ridge regression whose penalty follows from the known noise; its variance is the residual one by the sum of squares.
    """

    sums: NDArray[np.int64]
    n_labels: int  # labels that were summed
    square_weight: float

    def arrays(self) -> Arrays:
        """Return the noisy sums and the stored Gram matrix."""
        return {"sums": self.sums} if self.stored_gram is None else {"sums": self.sums, "gram": self.stored_gram}

    @property
    def n_columns(self) -> int:
        """The number of columns of A."""
        return len(self.sums) - 1

    @property
    def released_sums(self) -> NDArray[np.float64]:
        """The noisy sums of A times the labels, which are measured from the center of the range."""
        return self.sums[:-1].astype(np.float64) * (self._half_step / self.grid_scale)

    @property
    def center(self) -> float:
        """The center of the range."""
        return (float(self.space.classes[0]) + float(self.space.classes[-1])) / 2

    @property
    def mean_square(self) -> float:
        """An estimate of the mean squared distance of labels from the center.

        It is a weighted mean of the noisy estimate and of half the value of uniform labels. The weights follow from the
        variances.
        """
        square_scale = self._half_step**2 * (len(self.space) - 1) / self.square_weight / max(1, self.n_labels)
        observed = square_scale * float(self.sums[-1])
        square_noise = square_scale * self.sigma
        expected = self._range_width**2 / 24
        weight = expected**2 / (expected**2 + square_noise**2)
        return float(np.clip(weight * observed + (1 - weight) * expected, self._half_step**2, self._range_width**2 / 4))

    @cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """The fitted linear model: `center` + A @ coefficients estimates the label.

        The prior variance of the coefficients is such that the model explains half of the mean square; the other half
        is residual variance.
        """
        signal = scatter = min(self.mean_square, self._range_width**2 / 12) / 2
        eigenvalues, directions = np.linalg.eigh(self.gram)
        eigenvalues = np.maximum(eigenvalues, 0)
        z = directions.T @ self.released_sums
        # In each direction z = eigenvalue * b + (residual variance) + (privacy noise), with b ~ N(0, prior variance).
        prior_variance = signal * max(1, self.n_labels) / max(float(eigenvalues.sum()), 1e-12)
        # The last term avoids a division by zero for empty directions without noise.
        noise_variance = eigenvalues * scatter + self.noise_deviation**2 + 1e-300
        return directions @ (prior_variance * eigenvalues / (prior_variance * eigenvalues**2 + noise_variance) * z)

    @property
    def mean(self) -> float:
        """The mean prediction of the linear model for the rows that were summed, measured from the center."""
        row_ids = np.arange(self.n_rows) if self.row_mask is None else np.flatnonzero(self.row_mask)
        return float((self._query_rows(row_ids) @ self.coefficients).mean()) if row_ids.size else 0.0

    @property
    def noise_deviation(self) -> float:
        """The standard deviation of the noise in a sum, in units of A times units of the label."""
        return self._half_step * self.sigma / self.grid_scale

    @cached_property
    def residual_deviation(self) -> float:
        """The estimated standard deviation of labels from the linear model."""
        b = self.coefficients
        z = self.released_sums
        residual_variance = self.mean_square - float(2 * b @ z - b @ self.gram @ b) / max(1, self.n_labels)
        return float(
            np.sqrt(np.clip(residual_variance, max(self.mean_square / 20, self._half_step**2), self.mean_square))
        )

    @property
    def _half_step(self) -> float:
        return (self.space.step or 1.0) / 2

    @property
    def _range_width(self) -> float:
        return 2 * self._half_step * (len(self.space) - 1)

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        grid = np.array(self.space.classes, np.float64)
        location = self.center + self._query_rows(row_ids) @ self.coefficients
        return -((grid - location[:, None]) ** 2) / (2 * self.residual_deviation**2)


def to_probabilities(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return class probabilities from linear scores, which may lie outside [0, 1].

    A single column is the log-odds of the second of two classes.
    """
    if scores.shape[1] == 1:
        second = expit(scores)
        scores = np.concatenate([1 - second, second], axis=1)
    probabilities = np.clip(scores, 1e-3, None)
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def fit_log_odds(columns: NDArray[np.float64], class_sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit the weights of a logistic model of two columns to the column sums over the rows of the second class.

    If noise makes the weight of the second column negative, that weight becomes zero. A weak prior keeps the weights
    finite if no model has such sums.

    Args:
        columns: Two columns; the first is nearly constant.
        class_sums: The sums of both columns over the rows of the second class.
    """
    column_scales = np.array([1.0, max(float(columns[:, 1].std()), 1e-12)])
    scaled_columns, target_sums, weights = columns / column_scales, class_sums / column_scales, np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        probabilities = expit(scaled_columns @ weights)
        hessian = (
            scaled_columns * (probabilities * (1 - probabilities))[:, None]
        ).T @ scaled_columns + _PRIOR_PRECISION * np.eye(2)
        step = np.linalg.solve(hessian, target_sums - scaled_columns.T @ probabilities - _PRIOR_PRECISION * weights)
        largest = float(np.abs(step).max())
        weights = weights + step * min(1.0, 2 / max(largest, 1e-12))
        if largest < 1e-8:
            break
    if weights[1] < 0:
        weights = np.array([logit(target_sums[0] / len(columns)), 0.0])
    return weights / column_scales
