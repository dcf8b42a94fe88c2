"""Releases that are derived from releases: post-processing, which costs nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import HasLineage
from labeldp.core.errors import InputError
from labeldp.core.label_space import MISSING, Codes
from labeldp.releases.base import Arrays, Release, derived_provenance


@dataclass(frozen=True, eq=False, kw_only=True)
class PseudoLabels(Release):
    """Labels that were computed from releases, each correct with probability `confidence`."""

    kind = "prior"

    codes: Codes
    confidence: float

    @classmethod
    def of(cls, source: Release, codes: Codes, confidence: float, derived_from: Sequence[HasLineage] = ()) -> Self:
        """Replace the labels of `source` by `codes` (-1 for none); see `Release.relabel`."""
        codes = np.asarray(codes)
        n_classes = len(source.space)
        is_valid = np.issubdtype(codes.dtype, np.integer) and codes.shape == (source.n_rows,)
        if not is_valid or not ((codes >= MISSING) & (codes < n_classes)).all():
            raise InputError(f"relabel takes {source.n_rows} codes from -1 (none) to {n_classes - 1}.")
        if not 0 < confidence < 1:
            raise InputError("The confidence of a label must lie between 0 and 1.")
        derived_fields = _derived_fields(f"relabeled {source.mechanism}", source, derived_from)
        return cls(**derived_fields, row_mask=codes != MISSING, codes=codes, confidence=confidence)

    def arrays(self) -> Arrays:
        """Return the codes."""
        return {"codes": self.codes}

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        is_label = self.codes[row_ids][:, None] == np.arange(len(self.space))
        return np.log(np.where(is_label, self.confidence, (1 - self.confidence) / (len(self.space) - 1)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior(Release):
    """Class probabilities of each row that were computed from releases."""

    kind = "prior"

    probabilities: NDArray[np.float32]

    @classmethod
    def of(cls, source: Release, probabilities: NDArray[np.floating], derived_from: Sequence[HasLineage] = ()) -> Self:
        """Replace the evidence of `source` by unnormalized `probabilities`; see `Release.with_posterior`."""
        probabilities = np.asarray(probabilities, np.float32)
        if (
            probabilities.shape != (source.n_rows, len(source.space))
            or not (np.isfinite(probabilities) & (probabilities >= 0)).all()
        ):
            raise InputError(
                f"with_posterior takes probabilities for {source.n_rows} rows and {len(source.space)} classes."
            )
        derived_fields = _derived_fields(f"posterior from {source.mechanism}", source, derived_from)
        return cls(**derived_fields, row_mask=probabilities.max(axis=1) > 0, probabilities=probabilities)

    def arrays(self) -> Arrays:
        """Return the probabilities."""
        return {"probabilities": self.probabilities}

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        probabilities = self.probabilities[row_ids]
        return np.log(np.maximum(probabilities / probabilities.sum(axis=1, keepdims=True), 1e-12))


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinedRelease(Release):
    """Several releases of one vault, used as one."""

    parts: tuple[Release, ...]

    @property
    def kind(self) -> Literal["likelihood", "prior"]:  # type: ignore[override]
        """The kind of the joint evidence: "prior" if any part is one."""
        return "prior" if any(part.kind == "prior" for part in self.parts) else "likelihood"

    @classmethod
    def of(cls, parts: Sequence[Release]) -> Self:
        """Join `parts`; see `Release.concat`."""
        if not parts:
            raise InputError("concat needs at least one release.")
        first_part = parts[0]
        if any(p.space != first_part.space or p.n_rows != first_part.n_rows for p in parts):
            raise InputError("concat joins releases of one vault: these differ in classes or in rows.")
        part_masks = np.stack([_as_full_mask(p.row_mask, p.n_rows) for p in parts])
        if (part_masks[[p.kind == "prior" for p in parts]].sum(axis=0) > 1).any():
            raise InputError("Two priors of one row cannot be added: keep each on rows of its own, or average them.")
        for entry in {entry for p in parts for entry in _entry_ids(p)}:
            if (part_masks[[entry in _entry_ids(p) for p in parts]].sum(axis=0) > 1).any():
                raise InputError("The same release is named twice for one row: its evidence counts once.")
        return cls(
            space=first_part.space,
            mechanism=" + ".join(dict.fromkeys(p.mechanism for p in parts)),
            parameters={},
            entry=",".join(dict.fromkeys(entry for p in parts for entry in _entry_ids(p))) or None,
            n_rows=first_part.n_rows,
            row_mask=np.any(part_masks, axis=0, keepdims=True)[0],
            parts=tuple(parts),
            **derived_provenance(*parts),
        )

    def labels(self, seed: int = 0) -> Codes:
        """Return the label of the only part with evidence about a row, or else the class of the largest joint score."""
        part_masks = np.stack([_as_full_mask(part.row_mask, part.n_rows) for part in self.parts]) & _as_full_mask(
            self.row_mask, self.n_rows
        )
        has_one_part, codes = part_masks.sum(axis=0) == 1, super().labels(seed)
        for part, part_mask in zip(self.parts, part_masks, strict=True):
            codes = np.where(has_one_part & part_mask, part.labels(seed), codes)
        return codes

    def arrays(self) -> Arrays:
        """Raise InputError: only the parts are stored."""
        raise InputError("A joined release is saved by its parts: save each of them.")

    def _log_scores(self, row_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        return np.sum([part.log_evidence(row_ids) for part in self.parts], axis=0)


def _derived_fields(mechanism: str, source: Release, derived_from: Sequence[HasLineage]) -> dict[str, Any]:
    """Return the common fields of a release that was derived from `source` and from other sources."""
    copied_fields = {name: getattr(source, name) for name in ("space", "parameters", "entry", "n_rows")}
    return copied_fields | {"mechanism": mechanism} | derived_provenance(source, *derived_from)


def _as_full_mask(row_mask: NDArray[np.bool_] | None, n_rows: int) -> NDArray[np.bool_]:
    return np.ones(n_rows, bool) if row_mask is None else row_mask


def _entry_ids(release: Release) -> list[str]:
    return release.entry.split(",") if release.entry else []
