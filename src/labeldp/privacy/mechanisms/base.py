"""What every mechanism is: a frozen description that can state its loss, check its input and draw."""

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from labeldp.accounting.calibration import largest_epsilon
from labeldp.accounting.losses import Loss, PureLoss, RepeatedLoss
from labeldp.core.errors import InputError
from labeldp.core.exact_real import as_fraction
from labeldp.core.guarantee import Trust, Unit, check_delta, check_epsilon
from labeldp.core.label_space import Codes, LabelSpace
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.releases.base import Release

_ROUNDING_SLACK = 1 + Fraction(1, 10**9)  # what a product of floats may be off by
_MIN_EPSILON_GAIN = 1.01  # by how much each label's epsilon must grow for delta to be spent on it


class Mechanism(ABC):
    """A way for labels to leave the vault.

    Subclasses are frozen dataclasses: making one does no work and draws nothing. Arrays that they hold
    (priors, groups, queries) must not depend on raw labels: they are public, or computed from releases.
    """

    trust: ClassVar[Trust] = "local"

    epsilon: float

    @abstractmethod
    def loss(self, n_labels: int = 1) -> Loss:
        """Return what a unit loses that owns at most `labels` of the released rows."""

    def price(self, n_labels: int = 1) -> tuple[Fraction | float, Fraction]:
        """Return the epsilon and delta that such a unit is charged: what was asked for, for one label."""
        loss, delta = self.loss(n_labels), float(getattr(self, "delta", 0.0))
        requested = n_labels * as_fraction(self.epsilon)
        if isinstance(loss, PureLoss):  # the sum, but for rounding, or more if it says so
            return (requested if loss.bound <= requested * _ROUNDING_SLACK else as_fraction(loss.bound)), as_fraction(
                delta
            )
        return (requested if n_labels == 1 else as_fraction(loss.epsilon(delta))), as_fraction(delta)

    def with_epsilon(self, epsilon: float, **changes: Any) -> Self:
        """Return the same mechanism at another epsilon."""
        return replace(self, epsilon=epsilon, **changes)  # type: ignore[type-var]

    def scaled_to_unit(self, n_labels: int, delta: float = 0.0) -> "Mechanism":
        """Return this mechanism with the least noise at which a unit with `labels` labels pays the price of one.

        So whoever says what one label may lose says it for the unit. `delta` may be spent by mechanisms that have none
        of their own and lose less with it.
        """
        requested = self.price()

        def is_within_price(mechanism: Mechanism) -> bool:
            epsilon, failure_probability = mechanism.price(n_labels)
            return epsilon <= requested[0] and failure_probability <= requested[1]

        if is_within_price(self):
            return self
        equal_part = divide_epsilon(self.epsilon, n_labels)
        if isinstance(self.loss(n_labels), PureLoss):
            return self.with_epsilon(equal_part)
        return self.with_epsilon(
            largest_epsilon(lambda epsilon: is_within_price(self.with_epsilon(epsilon)), equal_part, self.epsilon)
        )

    @abstractmethod
    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Raise InputError if this mechanism does not fit the vault. Nothing is charged before this passes."""

    def prepare(self, codes: Codes, space: LabelSpace, cache: dict[Any, Any]) -> "Mechanism":
        """Do the long work that needs labels and no noise, and return what will draw: a new object, for the vault only.

        It runs before the charge, so that an interrupted training costs no budget: nothing of it leaves the vault, and
        it must not fail because of labels. `memory` is the vault's, for what a next request can use again.
        """
        return self

    @abstractmethod
    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> Release:
        """Draw the noise. Rows with code -1 take no part; `common` holds the fields that releases share."""

    def restore(self, release: Release) -> Release:
        """Complete a stored release by public inputs that are not stored with it."""
        return release

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters, arrays by shape and digest. Equal parameters mean the same request."""
        public = [f.name for f in fields(self) if not f.name.startswith("_")]  # type: ignore[arg-type]
        return {name: _fingerprint(getattr(self, name)) for name in public}

    def protects(self, unit: Unit) -> Unit:
        """Return whom a release protects, from a vault that protects such units."""
        return unit

    def released_parameters(self) -> dict[str, Any]:
        """Return the parameters that go with the release wherever it goes."""
        return self.parameters()


@dataclass(frozen=True, eq=False)
class PerLabelMechanism(Mechanism):
    """Noise for each label by itself, purely private for each.

    Proof for a unit with m labels: its rows are drawn independently, and each is epsilon-private. So the unit loses
    m epsilon at most, or what `losses.RepeatedLoss` composes at `delta`: whichever is less is charged. `delta` is
    not spent by units with one label.
    """

    epsilon: float
    delta: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_privacy(self.epsilon)
        check_delta(self.delta)

    def loss(self, n_labels: int = 1) -> PureLoss | RepeatedLoss:
        """Return epsilon for one label, and the joint loss of several."""
        return PureLoss(self.epsilon) if n_labels == 1 else RepeatedLoss(self.epsilon, n_labels)

    def price(self, n_labels: int = 1) -> tuple[Fraction, Fraction]:
        """Return the plain sum, or less with delta."""
        plain_sum, composed = n_labels * as_fraction(self.epsilon), as_fraction(self.loss(n_labels).epsilon(self.delta))
        return (composed, as_fraction(self.delta)) if self.delta and composed < plain_sum else (plain_sum, Fraction(0))

    def scaled_to_unit(self, n_labels: int, delta: float = 0.0) -> "PerLabelMechanism":
        """Return epsilon in equal parts, or larger ones that cost the unit as much at `delta`."""
        if n_labels == 1:
            return self
        equal_part = divide_epsilon(self.epsilon, n_labels)
        if not delta:
            return self.with_epsilon(equal_part)

        def is_within_price(epsilon: float) -> bool:
            return RepeatedLoss(epsilon, n_labels).epsilon(delta) <= self.epsilon

        larger = largest_epsilon(is_within_price, equal_part, self.epsilon)
        return (
            self.with_epsilon(larger, delta=delta)
            if larger > _MIN_EPSILON_GAIN * equal_part
            else self.with_epsilon(equal_part)
        )

    def parameters(self) -> dict[str, Any]:
        """Leave a delta out that is none."""
        return {name: value for name, value in super().parameters().items() if name != "delta" or value}


def divide_epsilon(epsilon: float, n_parts: int) -> float:
    """Return the largest decimal of which so many are no more than epsilon."""
    part = math.nextafter(epsilon / n_parts, math.inf)
    while n_parts * as_fraction(part) > as_fraction(epsilon):
        part = math.nextafter(part, 0.0)
    return part


def frozen_copy(values: Any, dtype: Any = None) -> NDArray[Any]:
    """Copy an array and freeze the copy: noise was measured for these values, and no others may take their place."""
    frozen = np.array(values, dtype)
    frozen.setflags(write=False)
    return frozen


def frozen_csr(matrix: Any) -> csr_array:
    """Copy a sparse matrix as frozen rows (CSR) in one form: sorted columns, duplicates summed, no stored zeros.

    The order that the caller's matrix claims for itself is not relied on.
    """
    if len(matrix.shape) != 2 or matrix.dtype.kind not in "fiu":
        raise InputError("A sparse matrix must have rows and columns of whole numbers or floats: convert it.")
    dtype = matrix.dtype if matrix.dtype in (np.float32, np.float64) else np.float64
    csr = matrix.astype(dtype, copy=False).tocsr()
    try:
        frozen = csr_array((np.array(csr.data), np.array(csr.indices), np.array(csr.indptr)), shape=csr.shape)
        frozen.check_format(full_check=True)
    except (ValueError, IndexError):
        raise InputError("The sparse matrix is damaged: an entry lies outside its rows or columns.") from None
    frozen.sum_duplicates()
    frozen.eliminate_zeros()
    index_dtype = np.int32 if max(*frozen.shape, frozen.nnz) < 2**31 else np.int64  # of equal matrices the same
    frozen.indices, frozen.indptr = (
        frozen.indices.astype(index_dtype, copy=False),
        frozen.indptr.astype(index_dtype, copy=False),
    )
    for array in (frozen.data, frozen.indices, frozen.indptr):
        array.setflags(write=False)
    return frozen


def check_privacy(epsilon: float, delta: float | None = None) -> None:
    """Check epsilon, and a delta that must be positive where it is given."""
    check_epsilon(epsilon)
    if delta is not None:
        check_delta(delta, positive=True)


def check_distributions(prior: NDArray[np.floating], space: LabelSpace, n_rows: int, name: str = "the prior") -> None:
    """Check that `prior`, which messages call by `name`, holds one distribution over the classes for each row."""
    if prior.shape != (n_rows, len(space)):
        problem = f"{name[0].upper()}{name[1:]} has shape {prior.shape}"
        raise InputError(f"{problem}; it must have {n_rows} rows and {len(space)} classes.")
    if not (np.isfinite(prior).all() and (prior >= 0).all() and np.allclose(prior.sum(axis=1), 1, atol=1e-5)):
        raise InputError(f"Each row of {name} must be a distribution: no negative or missing values, sum 1.")


def downcast_integers(values: NDArray[np.int64]) -> NDArray[np.signedinteger]:
    """Store integers in the smallest type that holds them."""
    for dtype in (np.int8, np.int16, np.int32):
        if not values.size or np.abs(values).max() <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values


def without_digests(parameters: dict[str, Any]) -> dict[str, Any]:
    """Leave out what `parameters` tells of arrays and features: who has all rows but one could try what that one is."""
    return {name: value for name, value in parameters.items() if not (isinstance(value, dict) and "sha256" in value)}


def _fingerprint(value: Any) -> Any:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return float(value)  # epsilon=1 and epsilon=1.0 are one request
    if hasattr(value, "tocsr"):  # of scipy.sparse
        csr = value.tocsr()
        part_digests = "".join(_fingerprint(part)["sha256"] for part in (csr.data, csr.indices, csr.indptr))
        digest = hashlib.sha256(part_digests.encode()).hexdigest()
        return {"shape": list(csr.shape), "dtype": str(csr.dtype), "entries": int(csr.nnz), "sha256": digest}
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:  # of which memory holds addresses, others in each process
            raise InputError("A mechanism takes arrays of numbers, dates or texts, not of Python objects: convert it.")
        digest = hashlib.sha256(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data).hexdigest()
        return {"shape": list(value.shape), "dtype": str(value.dtype), "sha256": digest}
    return {"sha256": value.digest()} if hasattr(value, "digest") else value  # as of arrays: copies leave it out
