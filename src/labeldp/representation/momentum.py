"""Encoders taught by a slowly moving copy of themselves: BYOL (Grill et al. 2020) and MoCo v3 (Chen et al. 2021)."""

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.data.base import Features
from labeldp.learn.base import follow
from labeldp.learn.model import Model
from labeldp.representation.base import Representation, projector


@dataclass(frozen=True)
class Momentum(Representation):
    """Predict, from each view of a row, what the copy says of every other view.

    The copy follows with `inertia`, which rises to `last_inertia` along a cosine. It is an average of the network's
    last weights, and the better encoder: it is what `fit` returns. A training of few steps needs less inertia, or its
    copy stays behind: 0.9 and 0.99 for hundreds of steps.
    """

    views: int = 2
    inertia: float = 0.99
    last_inertia: float = 0.999
    hidden: int = 2048
    projection: int = 256

    @abstractmethod
    def compare(self, said: Tensor, meant: Tensor) -> Tensor:
        """Return the loss of predictions for a batch against what the copy says, row by row the same."""

    def fit(self, features: Features) -> Model:
        """Train the encoder; no label is looked at."""
        features, network = self._prepare(features)
        spread = nn.BatchNorm1d(self.projection, affine=False)  # no direction of the projection may go unused
        project = projector(network.width, self.hidden, self.projection, spread).to(features.device)
        predict = projector(self.projection, self.hidden, self.projection).to(features.device)
        online = nn.ModuleList([network, project])
        target = copy.deepcopy(online).requires_grad_(False)

        def begin_step(done: float) -> None:
            follow(target, online, self.inertia_at(done))

        def loss(rows: Tensor) -> Tensor:
            batch = features.batch(rows)
            views = torch.cat([features.view(batch, self.size) for _ in range(self.views)])
            said = predict(project(network.embed(views))).float().chunk(self.views)
            with torch.no_grad():
                meant = target[1](target[0].embed(views)).float().chunk(self.views)  # type: ignore[operator]
            pairs = list(permutations(range(self.views), 2))
            return torch.stack([self.compare(said[a], meant[b]) for a, b in pairs]).mean()

        everything = nn.ModuleList([*target, *online, predict])
        return self._finish(everything, features, loss, begin_step=begin_step)

    def inertia_at(self, done: float) -> float:
        """Return the copy's inertia after a share of all steps."""
        return self.last_inertia - (self.last_inertia - self.inertia) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class BYOL(Momentum):
    """Predictions must point where the copy's do. Rows are not compared with each other."""

    def compare(self, said: Tensor, meant: Tensor) -> Tensor:
        """Return the squared distance of directions."""
        return 2 - 2 * F.cosine_similarity(said, meant).mean()


@dataclass(frozen=True)
class MoCo(Momentum):
    """Predictions must point to the copy's view of the same row rather than of any other row in the batch."""

    temperature: float = 0.2

    def compare(self, said: Tensor, meant: Tensor) -> Tensor:
        """Return the cross-entropy of finding one's own row, in float32 whatever the network's precision."""
        with torch.autocast(said.device.type, enabled=False):
            likeness = F.normalize(said, dim=1) @ F.normalize(meant, dim=1).T / self.temperature
            return F.cross_entropy(likeness, torch.arange(len(said), device=said.device))
