"""Releases made from releases: post-processing, free of charge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import Source
from labeldp.core.errors import InputError
from labeldp.core.label_space import MISSING, Codes
from labeldp.releases.base import Arrays, Release, derived_facts


@dataclass(frozen=True, eq=False, kw_only=True)
class Relabelled(Release):
    """Labels worked out from releases, each believed with `confidence`."""

    kind = "prior"

    codes: Codes
    confidence: float

    @classmethod
    def of(cls, source: Release, codes: Codes, confidence: float, derived_from: Sequence[Source] = ()) -> Self:
        """Put `codes` (-1 for none) in place of the labels of `source`."""
        codes = np.asarray(codes)
        classes = len(source.space)
        whole = np.issubdtype(codes.dtype, np.integer) and codes.shape == (source.rows,)
        if not whole or not ((codes >= MISSING) & (codes < classes)).all():
            raise InputError(f"relabel takes {source.rows} codes from -1 (none) to {classes - 1}.")
        if not 0 < confidence < 1:
            raise InputError("The confidence of a label must lie between 0 and 1.")
        about = _about(f"relabelled {source.mechanism}", source, derived_from)
        return cls(**about, active=codes != MISSING, codes=codes, confidence=confidence)

    def arrays(self) -> Arrays:
        """Return the codes."""
        return {"codes": self.codes}

    def _log_scores(self, rows: NDArray[np.int64]) -> NDArray[np.floating]:
        said = self.codes[rows][:, None] == np.arange(len(self.space))
        return np.log(np.where(said, self.confidence, (1 - self.confidence) / (len(self.space) - 1)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Believed(Release):
    """Probabilities of each row's classes, worked out from releases."""

    kind = "prior"

    chances: NDArray[np.float32]

    @classmethod
    def of(cls, source: Release, chances: NDArray[np.floating], derived_from: Sequence[Source] = ()) -> Self:
        """Put `chances` (rows, classes), which may be off by a factor for each row, in place of what `source` says."""
        chances = np.asarray(chances, np.float32)
        if chances.shape != (source.rows, len(source.space)) or not (np.isfinite(chances) & (chances >= 0)).all():
            raise InputError(f"believe takes probabilities for {source.rows} rows and {len(source.space)} classes.")
        about = _about(f"beliefs from {source.mechanism}", source, derived_from)
        return cls(**about, active=chances.max(axis=1) > 0, chances=chances)

    def arrays(self) -> Arrays:
        """Return the probabilities."""
        return {"chances": self.chances}

    def _log_scores(self, rows: NDArray[np.int64]) -> NDArray[np.floating]:
        chances = self.chances[rows]
        return np.log(np.maximum(chances / chances.sum(axis=1, keepdims=True), 1e-12))


@dataclass(frozen=True, eq=False, kw_only=True)
class Joined(Release):
    """Several releases of one vault, read as one."""

    parts: tuple[Release, ...]

    @property
    def kind(self) -> Literal["likelihood", "prior"]:  # type: ignore[override]
        """A posterior, as soon as one part is one."""
        return "prior" if any(part.kind == "prior" for part in self.parts) else "likelihood"

    @classmethod
    def of(cls, parts: Sequence[Release]) -> Self:
        """Join `parts`; see `Release.concat`."""
        if not parts:
            raise InputError("concat needs at least one release.")
        first = parts[0]
        if any(p.space != first.space or p.rows != first.rows for p in parts):
            raise InputError("concat joins releases of one vault: these differ in classes or in rows.")
        active = np.stack([_mask(p.active, p.rows) for p in parts])
        if (active[[p.kind == "prior" for p in parts]].sum(axis=0) > 1).any():
            raise InputError("Two priors of one row cannot be added: keep each on rows of its own, or average them.")
        for entry in {entry for p in parts for entry in _entries(p)}:
            if (active[[entry in _entries(p) for p in parts]].sum(axis=0) > 1).any():
                raise InputError("The same release is named twice for one row: its evidence counts once.")
        return cls(
            space=first.space,
            mechanism=" + ".join(dict.fromkeys(p.mechanism for p in parts)),
            parameters={},
            entry=",".join(dict.fromkeys(entry for p in parts for entry in _entries(p))) or None,
            rows=first.rows,
            active=np.any(active, axis=0, keepdims=True)[0],
            parts=tuple(parts),
            **derived_facts(*parts),
        )

    def labels(self, seed: int = 0) -> Codes:
        """Return what the only part says that speaks of a row, and else the class that all of them support best."""
        active = np.stack([_mask(part.active, part.rows) for part in self.parts]) & _mask(self.active, self.rows)
        alone, codes = active.sum(axis=0) == 1, super().labels(seed)
        for part, speaks in zip(self.parts, active, strict=True):
            codes = np.where(alone & speaks, part.labels(seed), codes)
        return codes

    def arrays(self) -> Arrays:
        """Refuse: the parts are what is stored."""
        raise InputError("A joined release is saved by its parts: save each of them.")

    def _log_scores(self, rows: NDArray[np.int64]) -> NDArray[np.floating]:
        return np.sum([part.log_evidence(rows) for part in self.parts], axis=0)


def _about(mechanism: str, source: Release, derived_from: Sequence[Source]) -> dict[str, Any]:
    """Describe a release that was worked out from one, and from what else it rests on."""
    same = {name: getattr(source, name) for name in ("space", "parameters", "entry", "rows")}
    return same | {"mechanism": mechanism} | derived_facts(source, *derived_from)


def _mask(rows: NDArray[np.bool_] | None, count: int) -> NDArray[np.bool_]:
    return np.ones(count, bool) if rows is None else rows


def _entries(release: Release) -> list[str]:
    return release.entry.split(",") if release.entry else []
