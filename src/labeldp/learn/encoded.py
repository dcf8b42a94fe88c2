"""Models of an encoder's embeddings, and encoders that concatenate others."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from labeldp.accounting.lineage import HasProvenance, Provenance
from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.core.label_space import LabelSpace
from labeldp.data.base import Features
from labeldp.data.embeddings import Embeddings
from labeldp.learn.backbones import ConcatEncoder, Network
from labeldp.learn.model import Model
from labeldp.learn.predictor import Predictor, load_predictor, write_metadata


@dataclass(frozen=True)
class EncodedModel(HasProvenance):
    """An encoder and a model of its embeddings, with the combined provenance of both."""

    encoder: Model
    model: Predictor

    @property
    def space(self) -> LabelSpace | None:
        """The classes."""
        return self.model.space

    @cached_property
    def provenance(self) -> Provenance:  # type: ignore[override]
        """The combined provenance of the model and of the encoder."""
        return Provenance.of(self.model, self.encoder)

    def predict_proba(self, features: Features) -> NDArray[np.floating]:
        """Return the probability of each class for each row."""
        return self.model.predict_proba(Embeddings(self.encoder.embed(features)))

    def predict(self, features: Features) -> NDArray[Any]:
        """Return the most probable label of each row."""
        return self.model.predict(Embeddings(self.encoder.embed(features)))

    def save(self, folder: str | Path) -> None:
        """Write both into a new folder."""
        with atomic_write(Path(folder)) as partial:
            partial.mkdir()
            write_metadata(partial, self, {"kind": "encoded"})
            self.encoder.save(partial / "encoder")
            self.model.save(partial / "model")

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> "EncodedModel":
        """Read a model that `save` wrote."""
        return cls(Model.load(Path(folder) / "encoder", device), load_predictor(Path(folder) / "model", device))


def attach_linear_head(encoder: Model, linear_model: Model) -> Model:
    """Return one network: the encoder with a linear model of its embeddings as head, a start for any learner.

    Args:
        encoder: The encoder.
        linear_model: A model of the backbone `linear`, trained on the encoder's embeddings.

    Returns:
        A model with the combined provenance of both.

    Raises:
        InputError: The linear model has another architecture or width, or lacks the provenance of the encoder.
    """
    encoder_network, linear_network = encoder.network, linear_model.network
    if (
        not isinstance(encoder_network, Network)
        or not isinstance(linear_network, Network)
        or linear_network.config["name"] != "linear"
    ):
        raise InputError("Only a linear model of an encoder's embeddings can become its head: train `linear` on them.")
    if linear_network.width != encoder_network.width:
        raise InputError(
            f"The linear model has {linear_network.width} columns, and the encoder gives {encoder_network.width}."
        )
    network = copy.deepcopy(encoder_network)
    network.head = copy.deepcopy(linear_network.head)
    network.config = encoder_network.config | {"classes": linear_network.head.out_features}
    with torch.no_grad():  # the normalization of the linear model becomes part of the weights
        network.head.weight.div_(linear_network.deviation)
        network.head.bias.sub_(network.head.weight @ linear_network.mean)
    if not set(encoder.lineage) <= set(linear_model.lineage) or (encoder.guarantee and not encoder.lineage):
        raise InputError(
            "The encoder was trained on labels that are not in the provenance of the linear model: name them there."
        )
    return Model(network.to(encoder_network.mean.device), linear_model.space, Provenance.of(linear_model, encoder))


def concat_encoders(encoders: Sequence[Model], features: Features) -> Model:
    """Return one encoder that concatenates several, each scaled by the RMS norm of its centered embeddings.

    Args:
        encoders: Encoders that were trained without labels.
        features: The rows from which the norms are computed.

    Returns:
        The combined encoder.

    Raises:
        InputError: There is no encoder, or one was trained on labels, or is itself a combination.
    """
    if not encoders:
        raise InputError("There is no encoder: give one or more.")
    networks, lengths = [], []
    for encoder in encoders:
        if encoder.provenance.uses_labels:
            raise InputError("An encoder was trained on labels: concatenate encoders that were trained without labels.")
        if not isinstance(encoder.network, Network):
            raise InputError("Only single networks of this library can be concatenated: use `split_encoder` first.")
        networks.append(copy.deepcopy(encoder.network))
        lengths.append(_rms_norm(encoder.embed(features)))
    return Model(ConcatEncoder(networks, lengths).to(networks[0].mean.device).eval(), None, Provenance.of(*encoders))


def split_encoder(encoder: Model) -> list[Model]:
    """Return the encoders that a concatenated encoder consists of, or the encoder itself."""
    network = encoder.network
    if not isinstance(network, ConcatEncoder):
        return [encoder]
    return [Model(each, None, encoder.provenance) for each in network.networks]


def concat_embeddings(embeddings: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Concatenate embeddings of the same rows, scaled as by `concat_encoders`."""
    return np.concatenate([each / _rms_norm(each) for each in embeddings], axis=1)


def _rms_norm(embeddings: NDArray[np.float32]) -> float:
    """Return the root mean square distance of rows from their mean."""
    return float(np.sqrt(embeddings.var(axis=0, dtype=np.float64).sum())) or 1.0
