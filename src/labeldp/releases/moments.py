"""Releases of noisy label moments A'Y for a public matrix A."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from labeldp.errors import InputError
from labeldp.releases.base import Arrays, Release


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyMoments(Release):
    """A'Y (columns of A, classes) on an integer grid plus Gaussian noise, and the public A'A and A'1.

    The prior of a row is a linear model fitted to the moments: ridge regression whose penalty follows from the
    known noise and from the marginal likelihood of the moments. A itself is public and not stored; it comes
    from the mechanism, or from `with_query` after loading.
    """

    kind: ClassVar[Literal["likelihood", "prior"]] = "prior"

    moments: NDArray[np.int64]
    gram: NDArray[np.float64]
    totals: NDArray[np.float64]
    scale: float  # grid steps in one unit of A
    sigma: float  # noise, in grid steps
    query: NDArray[np.floating] | None = None

    def arrays(self) -> Arrays:
        """Return the noisy moments and the public sums."""
        return {"moments": self.moments, "gram": self.gram, "totals": self.totals}

    def __getstate__(self) -> dict[str, Any]:
        # The public matrix can be as large as all features, and a pickled model needs it as little as a stored release.
        return self.__dict__ | {"query": None}

    def with_query(self, query: NDArray[np.floating]) -> "NoisyMoments":
        """Give back the public matrix A, so that rows can be scored."""
        from dataclasses import replace

        if np.shape(query) != (self.rows, len(self.moments)):
            raise InputError(f"The query must have {self.rows} rows and {len(self.moments)} columns.")
        return replace(self, query=np.asarray(query))

    @cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """The fitted linear model: A @ coefficients estimates the probability of each class."""
        directions, gain = self._fit
        return directions @ (gain[:, None] * (directions.T @ self._told))

    @cached_property
    def mean_score(self) -> float:
        """The mean score that the linear model gives to the true class of the rows that were summed.

        It is linear in labels, so the sums tell it; what the model owes to their noise is taken off.
        """
        owed = (len(self.space) - 1) * (self.sigma / self.scale) ** 2 * self._fit[1].sum()
        count = self.rows if self.active is None else int(self.active.sum())
        return float(((self.coefficients * self._told).sum() - owed) / count)

    @cached_property
    def _told(self) -> NDArray[np.float64]:
        """A'Y without the part of its noise that is known: its columns add up to A'1, which is public."""
        z = self.moments / self.scale
        z -= (z.sum(axis=1) - self.totals)[:, None] / len(self.space)
        return z

    @cached_property
    def _fit(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Directions of A'A, and by how much the fit multiplies the moments in each."""
        classes = len(self.space)
        size, directions = np.linalg.eigh(self.gram)
        size = np.maximum(size, 0)
        z = directions.T @ self._told
        # In each direction z = size * b + (label scatter) + (privacy noise), with b ~ N(0, spread).
        other = size * (1 - 1 / classes) / classes + (self.sigma / self.scale) ** 2

        def surprise(log_spread: float) -> float:
            variance = np.exp(log_spread) * size**2 + other
            return float(classes * np.log(variance).sum() + ((z**2).sum(axis=1) / variance).sum())

        spread = np.exp(minimize_scalar(surprise, bounds=(-30, 30), method="bounded").x)
        return directions, spread * size / (spread * size**2 + other)

    def _log_scores(self, rows: NDArray[np.int64]) -> NDArray[np.floating]:
        if self.query is None:
            raise InputError("The public matrix A is not stored with its moments: give it back by with_query(A).")
        return np.log(as_chances(np.asarray(self.query[rows], np.float64) @ self.coefficients))


def as_chances(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    """Read estimated probabilities, which may lie outside 0 to 1, as a distribution."""
    chance = np.clip(scores, 1e-3, None)
    return chance / chance.sum(axis=1, keepdims=True)
