"""A linear model from noisy moments: the ridge regression of `NoisyMoments`, for rows that were not in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labeldp.errors import InputError
from labeldp.features.base import Features
from labeldp.files import written_whole
from labeldp.guarantees import Guarantee
from labeldp.labels import LabelSpace
from labeldp.learn.predictor import not_a_model, read_facts, write_facts
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments, as_chances
from labeldp.represent.lift import Lift
from labeldp.spending import Use


@dataclass(frozen=True)
class Ridge:
    """Fits moments of lifted rows. The penalty follows from the known noise: there is nothing to tune."""

    lift: Lift

    def fit(self, features: Features, release: Release, start: Any = None) -> "LinearModel":
        """Return the linear model; `features` are not needed again, because the moments hold what matters."""
        if not isinstance(release, NoisyMoments):
            raise InputError(f"Ridge learns from a LinearQuery, not from {release.mechanism}: use another learner.")
        if len(release.moments) != self.lift.columns:
            raise InputError("The moments are of other columns than those of this lift: use the one of the query.")
        return LinearModel(release.space, release.guarantee, release.lineage, self.lift, release.coefficients)


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Lifted rows times coefficients, cut below and normalised to probabilities."""

    space: LabelSpace
    guarantee: Guarantee | None
    lineage: tuple[Use, ...]
    lift: Lift
    coefficients: NDArray[np.float64]

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""
        return as_chances(self.lift(features) @ self.coefficients)

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the likeliest label of each row."""
        return self.space.decode(self.predict_proba(features).argmax(axis=1))

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder, whole or not at all."""
        arrays: dict[str, Any] = {"coefficients": self.coefficients} | self.lift.arrays()
        with written_whole(Path(folder)) as partial:
            partial.mkdir()
            write_facts(partial, self, {"kind": "linear"})
            np.savez(partial / "arrays.npz", **arrays)

    @classmethod
    def load(cls, folder: str | Path) -> "LinearModel":
        """Read a model that `save` wrote."""
        facts = read_facts(folder)
        try:
            with np.load(Path(folder) / "arrays.npz") as file:
                arrays = dict(file)
            coefficients = arrays.pop("coefficients")
            return cls(facts["space"], facts["guarantee"], facts["lineage"], Lift(**arrays), coefficients)
        except Exception:
            raise not_a_model(folder) from None
