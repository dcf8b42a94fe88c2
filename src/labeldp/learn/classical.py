"""Any scikit-learn classifier that takes sample weights, on features of any kind."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import written_whole
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.estimator_files import read_estimator, written_estimator
from labeldp.learn.prebin import coarse
from labeldp.learn.predictor import Predictor, best_labels, not_a_model, read_facts, write_facts
from labeldp.learn.weighted import Weighted, log_proba
from labeldp.releases.base import Release

_FURTHEST = 1e6  # deviations


@dataclass(frozen=True, eq=False)
class Standardised:
    """Rows as estimators of scikit-learn see them, with the moments by which they were standardised."""

    features: Features
    rows: NDArray[np.float32]
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @classmethod
    def of(
        cls, features: Features, estimator: Any = None, chosen: NDArray[np.bool_] | slice = slice(None)
    ) -> "Standardised":
        """Standardise rows; for boosted trees, those that are `chosen` to be trained on are also binned."""
        mean, deviation = features.moments()
        rows = matrix(features, mean, deviation)
        if (binned := coarse(rows[chosen], estimator)) is not rows:
            rows[chosen] = binned
        return cls(features, rows, mean, deviation)


@dataclass(frozen=True)
class Classical:
    """`Weighted` for features: rows are standardised by their public moments first."""

    classifier: Any
    rounds: int = 10
    seen: Standardised | None = field(default=None, repr=False, compare=False)

    def prepare(self, features: Features, rows: NDArray[np.bool_]) -> "Classical":
        """Return this learner with all that it needs of the features alone, `rows` of which it will be trained on."""
        return replace(self, seen=Standardised.of(features, self.classifier, rows))

    def fit(self, features: Features, release: Release, start: Predictor | None = None) -> "ClassicalModel":
        """Fit by expectation maximisation, from the probabilities of `start` where it is given."""
        if len(features) != release.rows:
            raise InputError(f"There are {len(features)} rows of features and {release.rows} in the release.")
        seen = self.seen if self.seen is not None and self.seen.features is features else Standardised.of(features)
        guess = None if start is None else np.log(np.maximum(start.predict_proba(features), 1e-9))
        fitted = Weighted(self.classifier, self.rounds).fit(seen.rows, release, guess)
        return ClassicalModel(release.space, Provenance.of(release, start), fitted, seen.mean, seen.deviation)


@dataclass(frozen=True, eq=False)
class ClassicalModel(HasProvenance):
    """A fitted scikit-learn classifier, whose classes are codes, with the moments of its features."""

    space: LabelSpace
    provenance: Provenance
    classifier: Any
    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""
        return np.exp(log_proba(self.classifier, matrix(features, self.mean, self.deviation), len(self.space)))

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the likeliest label of each row, or the mean of numbers."""
        return best_labels(self.space, self.predict_proba(features))

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder: by skops, of scikit-learn's own types, never as a pickle."""
        written = written_estimator(self.classifier)
        with written_whole(Path(folder)) as partial:
            partial.mkdir()
            write_facts(partial, self, {"kind": "classical"})
            np.savez(partial / "arrays.npz", mean=self.mean, deviation=self.deviation)
            (partial / "classifier.skops").write_bytes(written)

    @classmethod
    def load(cls, folder: str | Path) -> "ClassicalModel":
        """Read a model that `save` wrote, of scikit-learn's own types only: nothing that a file could make run."""
        facts = read_facts(folder)
        try:
            classifier = read_estimator(Path(folder) / "classifier.skops")
            with np.load(Path(folder) / "arrays.npz") as arrays:
                moments = arrays["mean"], arrays["deviation"]
        except Exception:
            raise not_a_model(folder) from None
        return cls(facts["space"], facts["provenance"], classifier, *moments)


def matrix(features: Features, mean: NDArray[np.float32], deviation: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the rows as numbers, standardised by public moments, all of them finite.

    No row lies further from the mean of n rows than the root of n deviations. So only the difference of two huge
    numbers can overflow, or another row than those of the moments, which is brought to a limit.
    """
    return np.concatenate([_standardised(block, mean, deviation) for block in features.matrices(1 << 14)])


def _standardised(
    rows: NDArray[np.float32], mean: NDArray[np.float32], deviation: NDArray[np.float32]
) -> NDArray[np.float32]:
    if len(mean) != rows.shape[1]:  # images have moments for each channel
        mean, deviation = (np.repeat(part, rows.shape[1] // len(part)) for part in (mean, deviation))
    deviation = np.where(deviation > 0, deviation, np.float32(1.0))
    with np.errstate(over="ignore"):
        found = rows - mean
        found /= deviation
        if (beyond := ~np.isfinite(found)).any():
            columns = np.nonzero(beyond)[1]
            found[beyond] = (rows[beyond].astype(np.float64) - mean[columns]) / deviation[columns]
    return np.clip(found, -_FURTHEST, _FURTHEST, out=found)
