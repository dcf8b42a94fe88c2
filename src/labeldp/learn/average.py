"""The geometric mean of several models' probabilities, for where a choice among them would cost more than it gains.

Models of noisy labels are less certain than they could be, and an arithmetic mean is less certain still.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import written_whole
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.learn.predictor import Predictor, best_labels, load_predictor, not_a_model, read_facts, write_facts

_LEAST = 1e-6  # a smaller probability counts as this
_MOST = 100  # members of a model that is read


@dataclass(frozen=True, eq=False)
class AveragedModel(HasProvenance):
    """Several models of the same classes, whose log-probabilities are averaged.

    Attributes:
        space: The classes.
        provenance: The releases that the members rest on, all together.
        members: The models, at least one.
    """

    space: LabelSpace
    provenance: Provenance
    members: tuple[Predictor, ...]

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the geometric mean of each class's probabilities for each row, as probabilities."""
        found = [np.asarray(each.predict_proba(features), np.float64) for each in self.members]
        return softmax(np.mean([np.log(np.maximum(each, _LEAST)) for each in found], axis=0), axis=1)

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the likeliest label of each row."""
        return best_labels(self.space, self.predict_proba(features))

    def save(self, folder: str | Path) -> None:
        """Write the members into a new folder."""
        with written_whole(Path(folder)) as partial:
            partial.mkdir()
            write_facts(partial, self, {"kind": "average", "members": len(self.members)})
            for place, each in enumerate(self.members):
                each.save(partial / f"member-{place}")

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "AveragedModel":
        """Read what `save` wrote; `device` is for networks."""
        facts = read_facts(folder)
        space, count = facts["space"], facts.get("members")
        if not isinstance(count, int) or not 1 <= count <= _MOST:
            raise not_a_model(folder)
        members = tuple(load_predictor(Path(folder) / f"member-{place}", device) for place in range(count))
        if space is None or any(each.space != space for each in members):
            raise not_a_model(folder)
        return cls(space, facts["provenance"], members)


def averaged(models: Sequence[Predictor]) -> Predictor:
    """Return the mean of several models, or the only one.

    Args:
        models: One or more models of the same classes.

    Returns:
        A model that rests on all that they rest on.

    Raises:
        InputError: There is no model, or their classes differ.
    """
    if not models or models[0].space is None or any(each.space != models[0].space for each in models):
        raise InputError("An average needs one or more models of the same classes.")
    return models[0] if len(models) == 1 else AveragedModel(models[0].space, Provenance.of(*models), tuple(models))
