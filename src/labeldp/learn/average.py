"""The geometric mean of several models' probabilities, an alternative to a private selection among them.

Probabilities of models that were trained on noisy labels are often underconfident. An arithmetic mean is even less
confident, and a geometric mean is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.predictor import (
    Predictor,
    decode_probabilities,
    load_predictor,
    not_a_model_error,
    read_metadata,
    write_metadata,
)

_MIN_PROBABILITY = 1e-6  # a smaller probability counts as this
_MAX_MEMBERS = 100  # members of a model that is read


@dataclass(frozen=True, eq=False)
class AveragedModel(HasProvenance):
    """Several models of the same classes, whose log-probabilities are averaged.

    Attributes:
        space: The classes.
        provenance: The combined provenance of all members.
        members: The models, at least one.
    """

    space: LabelSpace
    provenance: Provenance
    members: tuple[Predictor, ...]

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the normalized geometric mean of the members' probabilities for each row."""
        probabilities = [np.asarray(each.predict_proba(features), np.float64) for each in self.members]
        return softmax(np.mean([np.log(np.maximum(each, _MIN_PROBABILITY)) for each in probabilities], axis=0), axis=1)

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the most probable label of each row."""
        return decode_probabilities(self.space, self.predict_proba(features))

    def save(self, folder: str | Path) -> None:
        """Write the members into a new folder."""
        with atomic_write(Path(folder)) as partial:
            partial.mkdir()
            write_metadata(partial, self, {"kind": "average", "members": len(self.members)})
            for index, each in enumerate(self.members):
                each.save(partial / f"member-{index}")

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "AveragedModel":
        """Read a model that `save` wrote; `device` is for members that are networks."""
        metadata = read_metadata(folder)
        space, n_members = metadata["space"], metadata.get("members")
        if not isinstance(n_members, int) or not 1 <= n_members <= _MAX_MEMBERS:
            raise not_a_model_error(folder)
        members = tuple(load_predictor(Path(folder) / f"member-{index}", device) for index in range(n_members))
        if space is None or any(each.space != space for each in members):
            raise not_a_model_error(folder)
        return cls(space, metadata["provenance"], members)


def average_models(models: Sequence[Predictor]) -> Predictor:
    """Return a model of the geometric mean of several models, or the only model.

    Args:
        models: One or more models of the same classes.

    Returns:
        A model with the combined provenance of all models.

    Raises:
        InputError: There is no model, or their classes differ.
    """
    if not models or models[0].space is None or any(each.space != models[0].space for each in models):
        raise InputError("An average needs one or more models of the same classes.")
    return models[0] if len(models) == 1 else AveragedModel(models[0].space, Provenance.of(*models), tuple(models))
