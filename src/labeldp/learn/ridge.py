"""Linear models from noisy moments: the ridge regression of `NoisyMoments` and `NoisySums`, applied to new rows."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.density import Density, label_grid
from labeldp.learn.predictor import decode_probabilities, not_a_model_error, read_metadata, write_metadata
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments, NoisySums, to_probabilities


@dataclass(frozen=True)
class Ridge:
    """Fits linear models to noisy moments of normalized rows. The penalty follows from the known noise variance."""

    normalizer: RowNormalizer

    def fit(self, features: Features, release: Release, start: Any = None) -> "LinearModel":
        """Return the linear model of noisy moments.

        Args:
            features: The rows of the moments.
            release: The noisy moments of these rows.
            start: Not used.

        Returns:
            The model.

        Raises:
            InputError: The release has no moments, or moments of other columns than those of the normalizer.
        """
        if not isinstance(release, NoisyMoments | NoisySums):
            raise InputError(f"Ridge learns from a LinearQuery, not from {release.mechanism}: use another learner.")
        if len(release.gram) != self.normalizer.n_columns:
            raise InputError("The moments have other columns than this normalizer: use the normalizer of the query.")
        shared_fields = release.space, Provenance.of(release), self.normalizer
        if isinstance(release, NoisySums):
            return LinearRegressionModel(*shared_fields, release.coefficients, release.residual_deviation)
        release = release if release.query is not None else release.with_query(self.normalizer(features))
        return LinearModel(*shared_fields, release.scoring_weights)


@dataclass(frozen=True, eq=False)
class LinearModel(HasProvenance):
    """Normalized rows times coefficients, converted to probabilities by clipping and normalizing, or from log-odds."""

    kind: ClassVar[str] = "linear"

    space: LabelSpace
    provenance: Provenance
    normalizer: RowNormalizer
    coefficients: NDArray[np.float64]

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""
        return to_probabilities(self.normalizer(features) @ self.coefficients)

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the most probable label of each row."""
        return decode_probabilities(self.space, self.predict_proba(features))

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder atomically."""
        own_arrays = {name: getattr(self, name) for name in self._own_fields()}
        arrays: dict[str, Any] = own_arrays | self.normalizer.arrays()
        with atomic_write(Path(folder)) as partial:
            partial.mkdir()
            write_metadata(partial, self, {"kind": self.kind})
            np.savez(partial / "arrays.npz", **arrays)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that `save` wrote."""
        metadata = read_metadata(folder)
        try:
            with np.load(Path(folder) / "arrays.npz") as file:
                arrays = {name: value if value.ndim else value.item() for name, value in file.items()}
            own_arrays = {name: arrays.pop(name) for name in cls._own_fields()}
            return cls(metadata["space"], metadata["provenance"], RowNormalizer(**arrays), **own_arrays)
        except Exception:
            raise not_a_model_error(folder) from None

    @classmethod
    def _own_fields(cls) -> list[str]:
        return [field.name for field in fields(cls)][3:]


@dataclass(frozen=True, eq=False)
class LinearRegressionModel(LinearModel):
    """A linear regression: the middle of the range plus normalized rows times coefficients, with normal residuals."""

    kind: ClassVar[str] = "line"

    deviation: float

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each declared number for each row."""
        return Density(label_grid(self.space), "squared", self.deviation).probabilities(self.predict(features))

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the expected number of each row, within the declared range."""
        grid = label_grid(self.space)
        return np.clip((grid[0] + grid[-1]) / 2 + self.normalizer(features) @ self.coefficients, grid[0], grid[-1])
