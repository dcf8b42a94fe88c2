"""The base class of encoders that are trained without labels. They take no release, so they have no privacy cost."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.backbones import Network
from labeldp.learn.base import Backbone, make_network, to_device
from labeldp.learn.loop import train_network
from labeldp.learn.model import Model
from labeldp.learn.training import Training


@dataclass(frozen=True)
class Representation(ABC):
    """Trains an encoder on features. The model that it returns can be the `start` of a learner.

    Attributes:
        backbone: A name, or a function of (shape, n_classes) that makes a network.
        training: The optimizer and its schedule.
        view_size: The height of views of images; None for that of the images.
    """

    backbone: Backbone = "auto"
    training: Training = field(default_factory=Training)
    view_size: int | None = None

    @abstractmethod
    def fit(self, features: Features) -> Model:
        """Train on all rows and return an encoder: a model without classes."""

    def _prepare(self, features: Features) -> tuple[Features, Network]:
        if len(features) < 2:
            raise InputError("An encoder is trained to distinguish rows: give two at least.")
        features = to_device(features, self.training)
        torch.manual_seed(self.training.seed)
        network = make_network(self.backbone, features, n_classes=1)
        if not isinstance(network, Network):
            raise InputError("An encoder needs a network of this library: choose a backbone by name or by `build`.")
        network.head.requires_grad_(False)  # it is not trained
        self._check_size(features, network)
        return features, network

    def _check_size(self, features: Features, network: Network) -> None:
        row_ids = torch.zeros(1, dtype=torch.long, device=features.device)
        try:
            with torch.no_grad():
                network.eval().embed(features.view(features.batch(row_ids), self.view_size))
        except RuntimeError:
            if self.view_size is not None:
                raise InputError(
                    "This backbone takes images of one size: leave out view_size, or choose resnet18."
                ) from None
            shape = " x ".join(map(str, features.shape))
            raise InputError(f"This backbone cannot take rows of {shape}: they are too small for it.") from None

    def _train_encoder(
        self, modules: nn.ModuleList, features: Features, loss: Callable[[Tensor], Tensor], **hooks: Any
    ) -> Model:
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("backbone", "training")}
        identity = f"{type(self).__name__} {settings} on {len(features)} rows of {features.kind}"
        identity += f" {features.digest()}" if self.training.checkpoint else ""  # a checkpoint belongs to these rows
        trained = train_network(modules, len(features), loss, self.training, identity=identity, **hooks)
        return Model(next(trained.children()), None)


def make_projector(in_features: int, hidden_features: int, out_features: int, *final_layers: nn.Module) -> nn.Module:
    """Return a projector: two layers, and further ones, between the encoding and the space of the loss."""
    first = nn.Linear(in_features, hidden_features, bias=False)
    return nn.Sequential(
        first, nn.BatchNorm1d(hidden_features), nn.ReLU(), nn.Linear(hidden_features, out_features), *final_layers
    )
