"""The interface of mechanisms: frozen descriptions that state their loss, check their input and draw noise."""

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

# Relative rounding error that a product of floats may have.
_ROUNDING_SLACK = 1 + Fraction(1, 10**9)
# Factor by which epsilon per label must grow before delta is spent on it.
_MIN_EPSILON_GAIN = 1.01


class Mechanism(ABC):
    """A randomized algorithm that releases something about labels.

    Subclasses are frozen dataclasses. Construction does no work and draws no noise. Arrays in their fields (priors,
    groups, queries) must not depend on raw labels: they are public, or computed from releases.
    """

    trust: ClassVar[Trust] = "local"

    epsilon: float

    @abstractmethod
    def loss(self, n_labels: int = 1) -> Loss:
        """Return the privacy loss of a unit that owns at most `n_labels` of the released rows."""

    def price(self, n_labels: int = 1) -> tuple[Fraction | float, Fraction]:
        """Return the epsilon and delta that such a unit is charged. One label costs the requested epsilon."""
        loss, delta = self.loss(n_labels), float(getattr(self, "delta", 0.0))
        requested = n_labels * as_fraction(self.epsilon)
        if isinstance(loss, PureLoss):  # the exact sum, unless the stated bound is larger by more than rounding
            charged = requested if loss.bound <= requested * _ROUNDING_SLACK else as_fraction(loss.bound)
        else:
            charged = requested if n_labels == 1 else as_fraction(loss.epsilon(delta))
        return charged, as_fraction(delta)

    def with_epsilon(self, epsilon: float, **changes: Any) -> Self:
        """Return the same mechanism at another epsilon."""
        return replace(self, epsilon=epsilon, **changes)  # type: ignore[type-var]

    def scaled_to_unit(self, n_labels: int, delta: float = 0.0) -> "Mechanism":
        """Return this mechanism with the least noise at which a unit with `n_labels` labels pays the price of one.

        An epsilon that is given for one label then holds for the unit. A mechanism without a delta of its own may spend
        `delta` if that lowers its loss.
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
        """Raise InputError if the mechanism does not fit the vault. The vault charges nothing before this check."""

    def prepare(self, codes: Codes, space: LabelSpace, cache: dict[Any, Any]) -> "Mechanism":
        """Do the long work that needs labels but no noise. Return the mechanism that draws, for the vault only.

        It runs before the charge, so that an interrupted training costs no budget. Its result stays inside the vault.
        Whether it fails must not depend on labels. `cache` belongs to the vault and stores results for later requests.
        """
        return self

    @abstractmethod
    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> Release:
        """Draw the noise. Ignore rows with code -1. `release_fields` has the fields that all releases share."""

    def restore(self, release: Release) -> Release:
        """Add public inputs to a stored release that are not stored with it."""
        return release

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters, arrays by shape and digest. Equal parameters mean the same request."""
        public = [f.name for f in fields(self) if not f.name.startswith("_")]  # type: ignore[arg-type]
        return {name: _fingerprint(getattr(self, name)) for name in public}

    def protects(self, unit: Unit) -> Unit:
        """Return the unit that a release protects, given the unit of the vault."""
        return unit

    def released_parameters(self) -> dict[str, Any]:
        """Return the parameters that are published with the release."""
        return self.parameters()


@dataclass(frozen=True, eq=False)
class PerLabelMechanism(Mechanism):
    """A mechanism with independent noise for each label and a pure guarantee for each.

    Proof for a unit with m labels: its rows are drawn independently, and each is epsilon-private. So the unit loses
    at most m epsilon, and at `delta` at most what `accounting.losses.RepeatedLoss` composes. The smaller of the two is
    charged. Units with one label do not spend `delta`.
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
        """Return the sum over labels, or less with delta."""
        plain_sum, composed = n_labels * as_fraction(self.epsilon), as_fraction(self.loss(n_labels).epsilon(self.delta))
        return (composed, as_fraction(self.delta)) if self.delta and composed < plain_sum else (plain_sum, Fraction(0))

    def scaled_to_unit(self, n_labels: int, delta: float = 0.0) -> "PerLabelMechanism":
        """Divide epsilon into equal parts, or into larger parts that have the same total cost at `delta`."""
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
        """Return the public parameters, without a delta of zero."""
        return {name: value for name, value in super().parameters().items() if name != "delta" or value}


def divide_epsilon(epsilon: float, n_parts: int) -> float:
    """Return the largest decimal number that, times `n_parts`, is at most epsilon."""
    part = math.nextafter(epsilon / n_parts, math.inf)
    while n_parts * as_fraction(part) > as_fraction(epsilon):
        part = math.nextafter(part, 0.0)
    return part


def frozen_copy(values: Any, dtype: Any = None) -> NDArray[Any]:
    """Return a read-only copy of an array, because noise is calibrated for exactly these values."""
    frozen = np.array(values, dtype)
    frozen.setflags(write=False)
    return frozen


def frozen_csr(matrix: Any) -> csr_array:
    """Return a read-only CSR copy of a sparse matrix in canonical form.

    Columns are sorted, duplicates are summed and stored zeros are removed. The function does not trust the format flags
    of the given matrix.
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
    index_dtype = np.int32 if max(*frozen.shape, frozen.nnz) < 2**31 else np.int64  # equal matrices have equal dtypes
    frozen.indices = frozen.indices.astype(index_dtype, copy=False)
    frozen.indptr = frozen.indptr.astype(index_dtype, copy=False)
    for array in (frozen.data, frozen.indices, frozen.indptr):
        array.setflags(write=False)
    return frozen


def check_privacy(epsilon: float, delta: float | None = None) -> None:
    """Check epsilon and, if given, a positive delta."""
    check_epsilon(epsilon)
    if delta is not None:
        check_delta(delta, positive=True)


def check_distributions(prior: NDArray[np.floating], space: LabelSpace, n_rows: int, name: str = "the prior") -> None:
    """Check that `prior` has one distribution over the classes for each row. Messages call it `name`."""
    if prior.shape != (n_rows, len(space)):
        problem = f"{name[0].upper()}{name[1:]} has shape {prior.shape}"
        raise InputError(f"{problem}; it must have {n_rows} rows and {len(space)} classes.")
    if not (np.isfinite(prior).all() and (prior >= 0).all() and np.allclose(prior.sum(axis=1), 1, atol=1e-5)):
        raise InputError(f"Each row of {name} must be a distribution: no negative or missing values, sum 1.")


def downcast_integers(values: NDArray[np.int64]) -> NDArray[np.signedinteger]:
    """Convert integers to the smallest dtype that represents them."""
    for dtype in (np.int8, np.int16, np.int32):
        if not values.size or np.abs(values).max() <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values


def without_digests(parameters: dict[str, Any]) -> dict[str, Any]:
    """Remove the digests of arrays and features from parameters.

    An attacker who knows all rows but one could test guesses of that row against a digest.
    """
    return {name: value for name, value in parameters.items() if not (isinstance(value, dict) and "sha256" in value)}


def _fingerprint(value: Any) -> Any:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return float(value)  # epsilon=1 and epsilon=1.0 are the same request
    if hasattr(value, "tocsr"):  # a matrix of scipy.sparse
        csr = value.tocsr()
        part_digests = "".join(_fingerprint(part)["sha256"] for part in (csr.data, csr.indices, csr.indptr))
        digest = hashlib.sha256(part_digests.encode()).hexdigest()
        return {"shape": list(csr.shape), "dtype": str(csr.dtype), "entries": int(csr.nnz), "sha256": digest}
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:  # its memory holds addresses, which differ between processes
            raise InputError("A mechanism takes arrays of numbers, dates or texts, not of Python objects: convert it.")
        digest = hashlib.sha256(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data).hexdigest()
        return {"shape": list(value.shape), "dtype": str(value.dtype), "sha256": digest}
    return {"sha256": value.digest()} if hasattr(value, "digest") else value  # as for arrays: copies leave it out
