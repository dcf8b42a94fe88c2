"""What a trained model of any kind is, and how it is kept."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import LabelUse
from labeldp.accounting.lineage import Provenance
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee
from labeldp.core.label_space import LabelSpace
from labeldp.core.lazy import require_torch
from labeldp.data.base import Features
from labeldp.data.label_bins import LossName
from labeldp.learn.density import label_grid, point_estimates
from labeldp.releases.base import Release

FORMAT = 1


class Predictor(Protocol):
    """Probabilities for new rows, with the guarantee of the labels that they rest on."""

    @property
    def space(self) -> LabelSpace | None:
        """The classes."""

    @property
    def guarantee(self) -> Guarantee | None:
        """What holds for every label that was used."""

    @property
    def lineage(self) -> tuple[LabelUse, ...]:
        """The uses of labels."""

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the likeliest label of each row; of numbers, the mean or the median of what they may be."""

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder; `load_predictor` reads it back."""


def decode_probabilities(
    space: LabelSpace, probabilities: NDArray[np.floating], loss: LossName = "squared"
) -> NDArray[Any]:
    """Return the likeliest class of each row; of numbers, the mean of what they may be, or the median."""
    if space.step is None:
        return space.decode(probabilities.argmax(axis=1))
    return point_estimates(probabilities, label_grid(space), loss)


def with_lineage(model: Predictor, releases: Sequence[Release]) -> Predictor:
    """Return the model with all that it rests on: also the choice by which it was preferred to others."""
    inner_model = getattr(model, "model", None)
    if inner_model is not None:
        return replace(model, model=with_lineage(inner_model, releases))  # type: ignore[type-var]
    return replace(model, provenance=Provenance.of(*releases, model))  # type: ignore[type-var]


def write_metadata(folder: Path, model: Predictor, extra: Mapping[str, Any]) -> None:
    """Write what every model says of itself, and what its kind adds."""
    metadata = {
        "format": FORMAT,
        **extra,
        "space": model.space.to_json() if model.space else None,
        **Provenance.of(model).to_json(),
    }
    (folder / "model.json").write_text(json.dumps(metadata, indent=2) + "\n")


def read_metadata(folder: str | Path) -> dict[str, Any]:
    """Read `model.json`: space and provenance as objects, the rest as written."""
    try:
        metadata = json.loads((Path(folder) / "model.json").read_text())
        metadata["space"] = LabelSpace.from_json(metadata["space"]) if metadata["space"] else None
        metadata["provenance"] = Provenance.from_json(metadata)
    except Exception:
        raise not_a_model_error(folder) from None
    return metadata


def not_a_model_error(folder: str | Path) -> InputError:
    """Return the error for a folder that holds no model."""
    if not Path(folder).exists():
        return InputError(f"There is no folder {folder}.")
    if (Path(folder) / "run.json").is_file():
        return InputError(f"{folder} is a run: its model is {Path(folder) / 'model'}, which learnt from labels.")
    return InputError(f"{folder} is not a model that labeldp wrote, or it is damaged.")


# Where each kind of model is at home. Only networks need torch, and say where they run.
_MODEL_CLASSES = {
    "additive": ("additive.model", "AdditiveModel"),
    "additive-numbers": ("additive.model", "AdditiveNumberModel"),
    "average": ("average", "AveragedModel"),
    "network": ("model", "Model"),
    "encoded": ("encoded", "EncodedModel"),
    "linear": ("ridge", "LinearModel"),
    "log-linear": ("additive.log_linear", "LogLinearModel"),
    "line": ("ridge", "LinearRegressionModel"),
    "classical": ("classical", "SklearnModel"),
    "boosted": ("boosting", "BoostedModel"),
    "boosted-numbers": ("number_boosting", "BoostedRegressionModel"),
    "numbers": ("regression", "RegressionModel"),
}
_NETWORKS = ("network", "encoded")
_NEEDS_DEVICE = (
    *_NETWORKS,
    "average",
    "boosted",
    "boosted-numbers",
)  # members of an average and the start of trees may be networks


def load_predictor(folder: str | Path, device: str = "auto") -> Predictor:
    """Read a model of any kind."""
    kind = read_metadata(folder).get("kind", "network")
    if kind not in _MODEL_CLASSES:
        raise not_a_model_error(folder)
    if kind in _NETWORKS:
        require_torch("A model that is a network")
    module, class_name = _MODEL_CLASSES[kind]
    model_class: Any = getattr(import_module(f"labeldp.learn.{module}"), class_name)
    model: Predictor = model_class.load(folder, device) if kind in _NEEDS_DEVICE else model_class.load(folder)
    return model
