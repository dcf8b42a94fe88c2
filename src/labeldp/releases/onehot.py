"""Releases of one noisy one-hot vector for each row."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.releases.base import Arrays, Release


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyOneHot(Release):
    """Integers (rows, classes): `height` at the code of the label, plus discrete Laplace or Gaussian noise."""

    kind: ClassVar[Literal["likelihood", "prior"]] = "likelihood"

    values: NDArray[np.signedinteger]
    noise: Literal["laplace", "gaussian"]
    scale: float
    height: int = 1

    def arrays(self) -> Arrays:
        """Return the noisy vectors."""
        return {"values": self.values}

    def _unbiased_labels(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.values[row_ids] / self.height

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        x = self.values[row_ids].astype(np.float64)
        plain = self._log_density(x)
        return plain.sum(axis=1, keepdims=True) - plain + self._log_density(x - self.height)

    def _log_density(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.noise == "laplace":
            return np.log(np.tanh(0.5 / self.scale)) - np.abs(x) / self.scale
        return -(x**2) / (2 * self.scale**2) - self._log_total

    @cached_property
    def _log_total(self) -> float:
        grid = np.arange(-np.ceil(40 * self.scale) - 1, np.ceil(40 * self.scale) + 2)
        return float(np.log(np.exp(-(grid**2) / (2 * self.scale**2)).sum()))
