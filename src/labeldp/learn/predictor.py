"""The interface of trained models of all types, and their files."""

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

FORMAT = 2  # of model.json and the files beside it; format 1 had other keys


class Predictor(Protocol):
    """A model that predicts probabilities for new rows, with the guarantee of its training labels."""

    @property
    def space(self) -> LabelSpace | None:
        """The classes."""

    @property
    def guarantee(self) -> Guarantee | None:
        """The privacy guarantee of the labels that were used; None if there were none."""

    @property
    def lineage(self) -> tuple[LabelUse, ...]:
        """The uses of labels."""

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the most probable label of each row; for numbers, the mean or the median of their distribution."""

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder; `load_predictor` reads it back."""


def decode_probabilities(
    space: LabelSpace, probabilities: NDArray[np.floating], loss: LossName = "squared"
) -> NDArray[Any]:
    """Return the most probable class of each row; for numbers, the mean, or the median for absolute loss."""
    if space.step is None:
        return space.decode(probabilities.argmax(axis=1))
    return point_estimates(probabilities, label_grid(space), loss)


def with_lineage(model: Predictor, releases: Sequence[Release]) -> Predictor:
    """Return the model with the provenance of further releases, those of its selection among models for example."""
    inner_model = getattr(model, "model", None)
    if inner_model is not None:
        return replace(model, model=with_lineage(inner_model, releases))  # type: ignore[type-var]
    return replace(model, provenance=Provenance.of(*releases, model))  # type: ignore[type-var]


def write_metadata(folder: Path, model: Predictor, extra: Mapping[str, Any]) -> None:
    """Write `model.json`: the fields of every model, and `extra` fields of its type."""
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
        if metadata["format"] != FORMAT:
            raise not_a_model_error(folder)
        metadata["space"] = LabelSpace.from_json(metadata["space"]) if metadata["space"] else None
        metadata["provenance"] = Provenance.from_json(metadata)
    except Exception:
        raise not_a_model_error(folder) from None
    return metadata


def not_a_model_error(folder: str | Path) -> InputError:
    """Return the error for a folder that contains no model of the current format."""
    if not Path(folder).exists():
        return InputError(f"There is no folder {folder}.")
    if (Path(folder) / "run.json").is_file():
        return InputError(f"{folder} is a run: its model is {Path(folder) / 'model'}, which was trained with labels.")
    return InputError(f"{folder} is not a model that labeldp wrote, or it is damaged.")


# The module and the class of each type of model, by the `kind` of `model.json`. Only networks need torch.
_MODEL_CLASSES = {
    "additive": ("additive.model", "AdditiveModel"),
    "additive-numbers": ("additive.model", "AdditiveNumberModel"),
    "average": ("average", "AveragedModel"),
    "network": ("model", "Model"),
    "encoded": ("encoded", "EncodedModel"),
    "linear": ("ridge", "LinearModel"),
    "log-linear": ("additive.log_linear", "LogLinearModel"),
    "line": ("ridge", "LinearRegressionModel"),
    "classical": ("sklearn_learner", "SklearnModel"),
    "boosted": ("boosting", "BoostedModel"),
    "boosted-numbers": ("regression_boosting", "BoostedRegressionModel"),
    "numbers": ("regression", "RegressionModel"),
}
_NETWORKS = ("network", "encoded")
# Members of an average and the start of trees may be networks.
_NEEDS_DEVICE = (*_NETWORKS, "average", "boosted", "boosted-numbers")


def load_predictor(folder: str | Path, device: str = "auto") -> Predictor:
    """Read a model of any type; `device` is for networks.

    Raises:
        InputError: The folder contains no model of the current `FORMAT`, or a package is missing.
    """
    kind = read_metadata(folder).get("kind", "network")
    if kind not in _MODEL_CLASSES:
        raise not_a_model_error(folder)
    if kind in _NETWORKS:
        require_torch("A model that is a network")
    module, class_name = _MODEL_CLASSES[kind]
    model_class: Any = getattr(import_module(f"labeldp.learn.{module}"), class_name)
    model: Predictor = model_class.load(folder, device) if kind in _NEEDS_DEVICE else model_class.load(folder)
    return model
