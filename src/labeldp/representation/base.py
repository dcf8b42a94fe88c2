"""What label-free learners share. None of them takes a release: they cost nothing and may see every row."""

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
from labeldp.learn.loop import train
from labeldp.learn.model import Model
from labeldp.learn.training import Training


@dataclass(frozen=True)
class Representation(ABC):
    """Learns an encoder from features. Learners take the model that it returns as their `start`."""

    backbone: Backbone = "auto"
    training: Training = field(default_factory=Training)
    view_size: int | None = None  # the height of views of pictures, if it is not the pictures' own

    @abstractmethod
    def fit(self, features: Features) -> Model:
        """Train on all rows and return an encoder: a model without classes."""

    def _prepare(self, features: Features) -> tuple[Features, Network]:
        if len(features) < 2:
            raise InputError("An encoder learns what tells rows apart: give two at least.")
        features = to_device(features, self.training)
        torch.manual_seed(self.training.seed)
        network = make_network(self.backbone, features, n_classes=1)
        if not isinstance(network, Network):
            raise InputError("An encoder needs a network of this library: choose a backbone by name or by `build`.")
        network.head.requires_grad_(False)  # it has no part in this
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
                    "This backbone takes one size of pictures: leave out size, or take resnet18."
                ) from None
            shape = " x ".join(map(str, features.shape))
            raise InputError(f"This backbone cannot take rows of {shape}: they are too small for it.") from None

    def _train_encoder(
        self, modules: nn.ModuleList, features: Features, loss: Callable[[Tensor], Tensor], **hooks: Any
    ) -> Model:
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("backbone", "training")}
        identity = f"{type(self).__name__} {settings} on {len(features)} rows of {features.kind}"
        identity += f" {features.digest()}" if self.training.checkpoint else ""  # a stopped training saw these rows
        trained = train(modules, len(features), loss, self.training, identity=identity, **hooks)
        return Model(next(trained.children()), None)


def make_projector(in_features: int, hidden_features: int, out_features: int, *final_layers: nn.Module) -> nn.Module:
    """Two layers, or more, between the encoding and where views are compared."""
    first = nn.Linear(in_features, hidden_features, bias=False)
    return nn.Sequential(
        first, nn.BatchNorm1d(hidden_features), nn.ReLU(), nn.Linear(hidden_features, out_features), *final_layers
    )
