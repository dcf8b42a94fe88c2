"""The base class of releases, which give evidence about the label of each row."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import LabelUse
from labeldp.accounting.lineage import HasLineage, Provenance
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee
from labeldp.core.label_space import MISSING, Codes, LabelSpace

if TYPE_CHECKING:
    from labeldp.releases.derived import JoinedRelease, Posterior, PseudoLabels

Arrays = dict[str, NDArray[Any]]
Evidence = NDArray[np.float32]

_BLOCK = 1 << 16  # rows whose evidence `labels` holds in memory at once


@dataclass(frozen=True, eq=False, kw_only=True)
class Release(ABC):
    """A release about `n_rows` labels, in compact form, with its guarantee.

    `log_evidence` returns a score for each class of the selected rows. Its `kind` is "likelihood",
    log p(release | label = c), for mechanisms that act row by row: such evidence adds. Or it is "prior", a model of
    log p(label = c | release), for aggregates: it may be averaged or used for training, but is never added to another
    prior.
    """

    kind: ClassVar[Literal["likelihood", "prior"]]
    has_row_evidence: ClassVar[bool] = True  # False for releases about all rows together

    space: LabelSpace
    guarantee: Guarantee
    mechanism: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    entry: str | None = None
    n_rows: int
    lineage: tuple[LabelUse, ...] = ()  # every use of labels, also those of the sources that it was derived from
    row_mask: NDArray[np.bool_] | None = None  # the active rows, which have evidence; None for all

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Release.__repr__  # type: ignore[method-assign]  # a dataclass would write out every row

    def __repr__(self) -> str:
        n_active = self.n_rows if self.row_mask is None else int(self.row_mask.sum())
        return f"{type(self).__name__}({self.mechanism}, {n_active:,} of {self.n_rows:,} rows, {self.guarantee})"

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return the compact form, which `save` writes and the ledger stores."""

    @abstractmethod
    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        """Return the scores of rows that are active."""

    def log_evidence(self, row_selection: Any = None) -> Evidence:
        """Return float32 scores (rows, classes); a row that is not active has zeros.

        Args:
            row_selection: Row numbers, a slice or a mask; None for all rows.
        """
        row_ids = self._resolve_rows(row_selection)
        out = np.zeros((row_ids.size, len(self.space)), np.float32)
        is_active = self._is_active(row_ids)
        out[is_active] = self._log_scores(row_ids[is_active])
        return out

    def labels(self, seed: int = 0) -> Codes:
        """Return the code with the largest score for each row, -1 for rows that are not active.

        Ties are broken at random from `seed`. This depends on the release alone and is no privacy noise.
        """
        rng = np.random.default_rng(seed)
        out = np.full(self.n_rows, MISSING, np.int32)
        for start in range(0, self.n_rows, _BLOCK):
            row_ids = np.arange(start, min(start + _BLOCK, self.n_rows))
            scores = self.log_evidence(row_ids)
            is_best = scores == scores.max(axis=1, keepdims=True)
            winner = np.where(is_best, rng.random(scores.shape), -1.0).argmax(axis=1)
            out[row_ids] = np.where(self._is_active(row_ids), winner, MISSING)
        return out

    def unbiased_labels(self, row_selection: Any = None) -> NDArray[np.float64]:
        """Return vectors whose mean, over the noise, is the one-hot label; zeros for rows that are not active."""
        row_ids = self._resolve_rows(row_selection)
        is_active = self._is_active(row_ids)
        out = np.zeros((row_ids.size, len(self.space)))
        out[is_active] = self._unbiased_labels(row_ids[is_active])
        return out

    def _unbiased_labels(self, row_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        raise InputError(f"{self.mechanism} has no unbiased labels: learn from its evidence.")

    def noise_matrix(self) -> NDArray[np.float64]:
        """Return P(released label = row | true label = column): cleanlab's convention, columns sum to 1."""
        raise InputError(f"{self.mechanism} does not release labels, so it has no noise matrix.")

    def keep(self, mask: NDArray[np.bool_], *, derived_from: Sequence[HasLineage] = ()) -> Self:
        """Drop the rows outside `mask`. This costs nothing.

        Args:
            mask: One boolean for each row.
            derived_from: The other releases, and the models trained on them, from which the mask was computed. The
                result includes their guarantee.
        """
        mask = np.asarray(mask)
        if mask.shape != (self.n_rows,) or mask.dtype != bool:
            raise InputError(f"keep takes a boolean mask of {self.n_rows} rows.")
        row_mask = mask.copy() if self.row_mask is None else mask & self.row_mask
        return replace(self, row_mask=row_mask, **derived_provenance(self, *derived_from))

    def relabel(
        self, codes: Codes, confidence: float = 1 - 1e-6, *, derived_from: Sequence[HasLineage] = ()
    ) -> "PseudoLabels":
        """Replace the labels by pseudo-labels that were computed from this release and from `derived_from`.

        Args:
            codes: A code for each row, -1 for none.
            confidence: The probability that a pseudo-label is correct.
            derived_from: The other releases and models from which the codes were computed.
        """
        from labeldp.releases.derived import PseudoLabels

        return PseudoLabels.of(self, codes, confidence, derived_from)

    def with_posterior(
        self, probabilities: NDArray[np.floating], *, derived_from: Sequence[HasLineage] = ()
    ) -> "Posterior":
        """Replace the evidence by class probabilities that were computed from this release and from `derived_from`.

        Args:
            probabilities: Nonnegative weights (rows, classes), which are normalized. A row of zeros becomes inactive.
            derived_from: The other releases and models from which the probabilities were computed.
        """
        from labeldp.releases.derived import Posterior

        return Posterior.of(self, probabilities, derived_from)

    @staticmethod
    def concat(*releases: "Release") -> "JoinedRelease":
        """Join releases of one vault. Evidence adds: likelihoods, and at most one prior, for each row."""
        from labeldp.releases.derived import JoinedRelease

        return JoinedRelease.of(releases)

    def save(self, path: str | Path) -> None:
        """Write the release to a `.npz` or `.parquet` file; `Release.load` reads it back."""
        from labeldp.releases.storage import save

        save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> "Release":
        """Read a release that `save` wrote."""
        from labeldp.releases.storage import load

        return load(Path(path))

    def _resolve_rows(self, row_selection: Any) -> NDArray[np.int64]:
        if row_selection is None:
            return np.arange(self.n_rows)
        row_ids = (
            np.arange(self.n_rows)[row_selection] if isinstance(row_selection, slice) else np.asarray(row_selection)
        )
        if row_ids.dtype == bool and row_ids.shape == (self.n_rows,):
            return np.flatnonzero(row_ids)
        is_integer = row_ids.ndim == 1 and (np.issubdtype(row_ids.dtype, np.integer) or not row_ids.size)
        if not is_integer or (row_ids.size and not 0 <= row_ids.min() <= row_ids.max() < self.n_rows):
            raise InputError(f"Choose rows by numbers from 0 to {self.n_rows - 1}, or by a mask of {self.n_rows} rows.")
        return row_ids.astype(np.int64)

    def _is_active(self, row_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.ones(row_ids.size, bool) if self.row_mask is None else self.row_mask[row_ids]


def derived_provenance(release: Release, *sources: HasLineage) -> dict[str, Any]:
    """Return the guarantee and the lineage of a result of a release and other sources, as fields of a release."""
    provenance = Provenance.of(release, *sources)
    return {"guarantee": provenance.guarantee, "lineage": provenance.lineage}
