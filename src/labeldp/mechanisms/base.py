"""What every mechanism is: a frozen description that can state its loss, check its input and draw."""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import fields
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.bits import Bits
from labeldp.errors import InputError
from labeldp.guarantees import Trust, check_delta, check_epsilon
from labeldp.labels import Codes, LabelSpace
from labeldp.losses import Loss, PureLoss
from labeldp.reals import exactly
from labeldp.releases.base import Release


class Mechanism(ABC):
    """A way for labels to leave the vault.

    Subclasses are frozen dataclasses: making one does no work and draws nothing. Arrays that they hold
    (priors, groups, queries) must not depend on raw labels: they are public, or computed from releases.
    """

    trust: ClassVar[Trust] = "local"

    epsilon: float

    @abstractmethod
    def loss(self, labels: int = 1) -> Loss:
        """Return what a unit loses that owns at most `labels` of the released rows."""

    def price(self, labels: int = 1) -> tuple[Fraction | float, Fraction]:
        """Return the epsilon and delta that such a unit is charged: what was asked for, for one label."""
        loss, delta = self.loss(labels), float(getattr(self, "delta", 0.0))
        if labels == 1 or isinstance(loss, PureLoss):
            return labels * exactly(self.epsilon), exactly(delta)
        return exactly(loss.epsilon(delta)), exactly(delta)

    @abstractmethod
    def check(self, space: LabelSpace, rows: int) -> None:
        """Raise InputError if this mechanism does not fit the vault. Nothing is charged before this passes."""

    def prepare(self, codes: Codes, space: LabelSpace, memory: dict[Any, Any]) -> "Mechanism":
        """Do the long work that needs labels and no noise, and return what will draw: a new object, for the vault only.

        It runs before the charge, so that an interrupted training costs no budget: nothing of it leaves the vault, and
        it must not fail because of labels. `memory` is the vault's, for what a next request can use again.
        """
        return self

    @abstractmethod
    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> Release:
        """Draw the noise. Rows with code -1 take no part; `common` holds the fields that releases share."""

    def restore(self, release: Release) -> Release:
        """Complete a stored release by public inputs that are not stored with it."""
        return release

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters, arrays by shape and digest. Equal parameters mean the same request."""
        public = [f.name for f in fields(self) if not f.name.startswith("_")]  # type: ignore[arg-type]
        return {name: _summary(getattr(self, name)) for name in public}


def private_copy(values: Any, dtype: Any = None) -> NDArray[Any]:
    """Copy an array and freeze the copy: noise was measured for these values, and no others may take their place."""
    copied = np.array(values, dtype)
    copied.setflags(write=False)
    return copied


def check_privacy(epsilon: float, delta: float | None = None) -> None:
    """Check epsilon, and a delta that must be positive where it is given."""
    check_epsilon(epsilon)
    if delta is not None:
        check_delta(delta, positive=True)


def check_distributions(prior: NDArray[np.floating], space: LabelSpace, rows: int) -> None:
    """Check that `prior` holds one distribution over the classes for each row."""
    if prior.shape != (rows, len(space)):
        raise InputError(f"The prior has shape {prior.shape}; it must have {rows} rows and {len(space)} classes.")
    if not (np.isfinite(prior).all() and (prior >= 0).all() and np.allclose(prior.sum(axis=1), 1, atol=1e-5)):
        raise InputError("Each row of the prior must be a distribution: no negative or missing values, sum 1.")


def smallest_integers(values: NDArray[np.int64]) -> NDArray[np.signedinteger]:
    """Store integers in the smallest type that holds them."""
    for dtype in (np.int8, np.int16, np.int32):
        if not values.size or np.abs(values).max() <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values


def _summary(value: Any) -> Any:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return float(value)  # epsilon=1 and epsilon=1.0 are one request
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return {"shape": list(value.shape), "dtype": str(value.dtype), "sha256": digest}
    return value.digest() if hasattr(value, "digest") else value
