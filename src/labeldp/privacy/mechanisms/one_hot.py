"""Discrete Laplace and Gaussian noise on one-hot labels.

Proof. A changed label moves two coordinates of the one-hot row, by `height` and `-height`. The noise is integer and
independent for each coordinate and row, so only those two coordinates contribute to the loss.

Laplace: P(x) is proportional to exp(-|x| epsilon / (2 height)). A move of `height` changes each of the two
probabilities by a factor of at most exp(epsilon / 2), and their product by at most exp(epsilon). The noise is
unbounded.

Gaussian: the loss of the move (+1, -1) is summed exactly (`accounting.losses.unit_shift_delta`). Sigma is the smallest
value that satisfies delta.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.calibration import unit_shift_sigma
from labeldp.accounting.losses import GaussianLoss
from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, PerLabelMechanism, check_privacy, downcast_integers
from labeldp.privacy.noise.samplers import MAX_SCALE, discrete_gaussian, discrete_laplace
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.onehot import NoisyOneHot


@dataclass(frozen=True, eq=False)
class OneHotLaplace(PerLabelMechanism):
    """Discrete Laplace noise of scale 2 * height / epsilon on each coordinate (ALIBI, Malek et al. 2021).

    A one-hot row has the value `height` at the label. Height 1 is the most informative: each coordinate is then a
    binary signal with a log-odds ratio of epsilon / 2. A large height approaches the continuous noise of the paper.
    """

    height: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.height, bool) or not isinstance(self.height, int) or self.height < 1:
            raise InputError("height must be a whole number from 1.")

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check that the noise can be drawn."""
        if 2 * self.height / self.epsilon >= MAX_SCALE / 2:
            raise InputError("The noise would be wider than the sampler draws: take a smaller height.")

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> NoisyOneHot:
        """Add the noise."""
        noise = discrete_laplace(
            2 * self.height / as_fraction(self.epsilon), codes.size * len(release_fields["space"]), bits
        )
        values = _add_one_hot(codes, noise, self.height)
        return NoisyOneHot(
            **release_fields, values=values, noise="laplace", scale=2 * self.height / self.epsilon, height=self.height
        )


@dataclass(frozen=True, eq=False)
class OneHotGaussian(Mechanism):
    """Discrete Gaussian noise on each coordinate, calibrated exactly to (epsilon, delta)."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_privacy(self.epsilon, self.delta)

    @cached_property
    def sigma(self) -> float:
        """The standard deviation of the noise."""
        return unit_shift_sigma(self.epsilon, self.delta)

    def loss(self, n_labels: int = 1) -> GaussianLoss:
        """Return the loss of `n_labels` pairs of coordinates, each moved by one."""
        return GaussianLoss(self.sigma, (2 * n_labels) ** 0.5, n_shifts=n_labels)

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Accept every vault."""

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> NoisyOneHot:
        """Add the noise."""
        noise = discrete_gaussian(as_fraction(self.sigma), codes.size * len(release_fields["space"]), bits)
        return NoisyOneHot(**release_fields, values=_add_one_hot(codes, noise, 1), noise="gaussian", scale=self.sigma)


def _add_one_hot(codes: Codes, noise: NDArray[np.int64], height: int) -> NDArray[np.signedinteger]:
    """Add one-hot rows to the noise; a row without a label stays zero."""
    values = noise.reshape(codes.size, -1)
    labeled_rows = np.flatnonzero(codes != MISSING)
    values[labeled_rows, codes[labeled_rows]] += height
    values[codes == MISSING] = 0
    return downcast_integers(values)
