"""What a trained model of any kind is, and how it is kept."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import Use
from labeldp.accounting.lineage import Provenance
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee
from labeldp.core.label_space import LabelSpace
from labeldp.core.lazy import require_torch
from labeldp.data.base import Features
from labeldp.data.label_bins import LossName
from labeldp.learn.density import centre, grid_of
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
    def lineage(self) -> tuple[Use, ...]:
        """The uses of labels."""

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the likeliest label of each row; of numbers, the mean or the median of what they may be."""

    def save(self, folder: str | Path) -> None:
        """Write the model into a new folder; `load_predictor` reads it back."""


def best_labels(space: LabelSpace, chances: NDArray[np.floating], loss: LossName = "squared") -> NDArray[Any]:
    """Return the likeliest class of each row; of numbers, the mean of what they may be, or the median."""
    if space.step is None:
        return space.decode(chances.argmax(axis=1))
    return centre(chances, grid_of(space), loss)


def resting_on(model: Predictor, releases: Sequence[Release]) -> Predictor:
    """Return the model with all that it rests on: also the choice by which it was preferred to others."""
    inner = getattr(model, "model", None)
    if inner is not None:
        return replace(model, model=resting_on(inner, releases))  # type: ignore[type-var]
    return replace(model, provenance=Provenance.of(*releases, model))  # type: ignore[type-var]


def write_facts(folder: Path, model: Predictor, more: Mapping[str, Any]) -> None:
    """Write what every model says of itself, and what its kind adds."""
    facts = {
        "format": FORMAT,
        **more,
        "space": model.space.to_json() if model.space else None,
        **Provenance.of(model).to_json(),
    }
    (folder / "model.json").write_text(json.dumps(facts, indent=2) + "\n")


def read_facts(folder: str | Path) -> dict[str, Any]:
    """Read `model.json`: space and provenance as objects, the rest as written."""
    try:
        facts = json.loads((Path(folder) / "model.json").read_text())
        facts["space"] = LabelSpace.from_json(facts["space"]) if facts["space"] else None
        facts["provenance"] = Provenance.from_json(facts)
    except Exception:
        raise not_a_model(folder) from None
    return facts


def not_a_model(folder: str | Path) -> InputError:
    """Return the error for a folder that holds no model."""
    if not Path(folder).exists():
        return InputError(f"There is no folder {folder}.")
    if (Path(folder) / "run.json").is_file():
        return InputError(f"{folder} is a run: its model is {Path(folder) / 'model'}, which learnt from labels.")
    return InputError(f"{folder} is not a model that labeldp wrote, or it is damaged.")


# Where each kind of model is at home. Only networks need torch, and say where they run.
_HOMES = {
    "additive": ("additive.model", "AdditiveModel"),
    "additive-numbers": ("additive.model", "AdditiveNumberModel"),
    "average": ("average", "AveragedModel"),
    "network": ("model", "Model"),
    "encoded": ("encoded", "EncodedModel"),
    "linear": ("ridge", "LinearModel"),
    "log-linear": ("additive.log_linear", "LogLinearModel"),
    "line": ("ridge", "LineModel"),
    "classical": ("classical", "ClassicalModel"),
    "boosted": ("boosting", "BoostedModel"),
    "boosted-numbers": ("number_boosting", "BoostedNumberModel"),
    "numbers": ("regression", "NumberModel"),
}
_NETWORKS = ("network", "encoded")
_ON_DEVICE = (
    *_NETWORKS,
    "average",
    "boosted",
    "boosted-numbers",
)  # members of an average and the start of trees may be networks


def load_predictor(folder: str | Path, device: str = "auto") -> Predictor:
    """Read a model of any kind."""
    kind = read_facts(folder).get("kind", "network")
    if kind not in _HOMES:
        raise not_a_model(folder)
    if kind in _NETWORKS:
        require_torch("A model that is a network")
    module, name = _HOMES[kind]
    home: Any = getattr(import_module(f"labeldp.learn.{module}"), name)
    model: Predictor = home.load(folder, device) if kind in _ON_DEVICE else home.load(folder)
    return model
