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
from labeldp.learn.base import update_ema
from labeldp.learn.model import Model
from labeldp.representation.base import Representation, make_projector


@dataclass(frozen=True)
class MomentumLearner(Representation):
    """Predict, from each view of a row, what the copy says of every other view.

    The copy follows with `inertia`, which rises to `last_inertia` along a cosine. It is an average of the network's
    last weights, and the better encoder: it is what `fit` returns. A training of few steps needs less inertia, or its
    copy stays behind: 0.9 and 0.99 for hundreds of steps.
    """

    n_views: int = 2
    ema_decay: float = 0.99
    final_ema_decay: float = 0.999
    hidden_features: int = 2048
    projection_features: int = 256

    @abstractmethod
    def prediction_loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of predictions for a batch against what the copy says, row by row the same."""

    def fit(self, features: Features) -> Model:
        """Train the encoder; no label is looked at."""
        features, network = self._prepare(features)
        batch_norm = nn.BatchNorm1d(
            self.projection_features, affine=False
        )  # no direction of the projection may go unused
        projection_head = make_projector(network.width, self.hidden_features, self.projection_features, batch_norm).to(
            features.device
        )
        prediction_head = make_projector(self.projection_features, self.hidden_features, self.projection_features).to(
            features.device
        )
        online = nn.ModuleList([network, projection_head])
        target = copy.deepcopy(online).requires_grad_(False)

        def begin_step(progress: float) -> None:
            update_ema(target, online, self.ema_decay_at(progress))

        def loss(row_ids: Tensor) -> Tensor:
            batch = features.batch(row_ids)
            views = torch.cat([features.view(batch, self.view_size) for _ in range(self.n_views)])
            predictions = prediction_head(projection_head(network.embed(views))).float().chunk(self.n_views)
            with torch.no_grad():
                targets = target[1](target[0].embed(views)).float().chunk(self.n_views)  # type: ignore[operator]
            pairs = list(permutations(range(self.n_views), 2))
            return torch.stack([self.prediction_loss(predictions[a], targets[b]) for a, b in pairs]).mean()

        modules = nn.ModuleList([*target, *online, prediction_head])
        return self._train_encoder(modules, features, loss, begin_step=begin_step)

    def ema_decay_at(self, progress: float) -> float:
        """Return the copy's inertia after a share of all steps."""
        return self.final_ema_decay - (self.final_ema_decay - self.ema_decay) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class BYOL(MomentumLearner):
    """Predictions must point where the copy's do. Rows are not compared with each other."""

    def prediction_loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the squared distance of directions."""
        return 2 - 2 * F.cosine_similarity(predictions, targets).mean()


@dataclass(frozen=True)
class MoCo(MomentumLearner):
    """Predictions must point to the copy's view of the same row rather than of any other row in the batch."""

    temperature: float = 0.2

    def prediction_loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of finding one's own row, in float32 whatever the network's precision."""
        with torch.autocast(predictions.device.type, enabled=False):
            similarity = F.normalize(predictions, dim=1) @ F.normalize(targets, dim=1).T / self.temperature
            return F.cross_entropy(similarity, torch.arange(len(predictions), device=predictions.device))
