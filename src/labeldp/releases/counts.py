"""Releases of noisy label counts by group."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.special import gammaln, softmax

from labeldp.releases.base import Arrays, Release


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyCounts(Release):
    """Counts (groups, classes) plus integer noise; group sizes are public.

    The prior of a row is the posterior predictive of an exchangeable model: the labels of a group are exchangeable,
    with a symmetric Dirichlet prior of total weight `concentration`. Then P(label = c | counts) is
    E[true count of c | noisy counts, size] / size, which is computed exactly.
    """

    kind: ClassVar[Literal["likelihood", "prior"]] = "prior"

    groups: NDArray[np.signedinteger]
    counts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    noise: Literal["gaussian", "geometric"]
    scale: float
    concentration: float = 1.0

    def arrays(self) -> Arrays:
        """Return groups, noisy counts and public sizes."""
        return {"groups": self.groups, "counts": self.counts, "sizes": self.sizes}

    @cached_property
    def class_probabilities(self) -> NDArray[np.float64]:
        """P(label = class | release) for a row of each group, (groups, classes)."""
        n_classes = len(self.space)
        return np.array(
            [
                expected_counts(noisy_counts, size, self._log_noise, self.concentration / n_classes) / max(1, size)
                if size
                else np.full(n_classes, 1 / n_classes)
                for noisy_counts, size in zip(self.counts, self.sizes, strict=True)
            ]
        ).reshape(-1, n_classes)

    def _log_noise(self, x: NDArray[Any]) -> NDArray[Any]:
        return -np.abs(x) / self.scale if self.noise == "geometric" else -(x**2) / (2 * self.scale**2)

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        return np.log(np.maximum(self.class_probabilities, 1e-12))[self.groups[row_ids]]


def expected_counts(
    noisy_counts: NDArray[np.int64],
    size: int,
    log_noise: Callable[[NDArray[Any]], NDArray[Any]],
    pseudo_count: float,
) -> NDArray[np.float64]:
    """Return E[counts | noisy counts, sum of counts = size] under a Dirichlet-multinomial prior.

    Given the sum, the posterior is a product of one factor for each class. So the marginal of a class is its factor
    times the convolution of the others.
    """
    count_grid = np.arange(size + 1)
    log_factor = (
        gammaln(count_grid + pseudo_count) - gammaln(count_grid + 1) + log_noise(noisy_counts[:, None] - count_grid)
    )
    # A common tilt exp(t * count) does not change the conditional distribution. It centers the sum of the factors on
    # the public size, so that the convolution is accurate there.
    log_factor = log_factor + _find_tilt(log_factor, size) * count_grid
    factor = softmax(log_factor, axis=1)
    convolutions_before = _running_convolutions(factor)
    convolutions_after = _running_convolutions(factor[::-1])[::-1]
    expected = np.empty(len(noisy_counts))
    for c, class_factor in enumerate(factor):
        other_factors = np.maximum(fftconvolve(convolutions_before[c], convolutions_after[c])[: size + 1], 0)
        posterior = class_factor * other_factors[::-1]
        expected[c] = (posterior @ count_grid) / posterior.sum()
    return expected * (size / expected.sum())


def _find_tilt(log_factor: NDArray[np.float64], size: int) -> float:
    count_grid = np.arange(size + 1)

    def mean_sum(t: float) -> float:
        weights = np.exp((x := log_factor + t * count_grid) - x.max(axis=1, keepdims=True))
        return float(((weights @ count_grid) / weights.sum(axis=1)).sum())

    low, high = -1.0, 1.0
    while mean_sum(low) > size:
        low *= 2
    while mean_sum(high) < size:
        high *= 2
    for _ in range(60):
        mid = (low + high) / 2
        gap = mean_sum(mid) - size
        if abs(gap) < 0.1:
            break
        low, high = (low, mid) if gap > 0 else (mid, high)
    return mid


def _running_convolutions(factor: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return, for each position, the convolution of all factors before it, cut at the largest count."""
    size = factor.shape[1]
    running = [np.eye(1, size)[0]]
    for row in factor[:-1]:
        running.append(np.maximum(fftconvolve(running[-1], row)[:size], 0))
    return running
