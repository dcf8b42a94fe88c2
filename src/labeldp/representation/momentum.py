"""Encoders with a momentum target network: BYOL (Grill et al. 2020) and MoCo v3 (Chen et al. 2021)."""

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
    """Predict, from each view of a row, the target network's projection of every other view.

    The target network is the exponential moving average of the encoder. It is more accurate than the encoder, and it is
    the model that `fit` returns. For a training of hundreds of steps, choose decays of 0.9 and 0.99.

    Attributes:
        n_views: The views of each row.
        ema_decay: The initial decay of the moving average.
        final_ema_decay: The last decay, which is reached along a cosine.
        hidden_features: The width of the hidden layers of projector and predictor.
        projection_features: The width of their outputs.
    """

    n_views: int = 2
    ema_decay: float = 0.99
    final_ema_decay: float = 0.999
    hidden_features: int = 2048
    projection_features: int = 256

    @abstractmethod
    def prediction_loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of predictions against projections of the target network for the same rows."""

    def fit(self, features: Features) -> Model:
        """Train the encoder without labels, and return the target network."""
        features, network = self._prepare(features)
        # It gives every direction of the projection the same variance.
        batch_norm = nn.BatchNorm1d(self.projection_features, affine=False)
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
        """Return the decay of the moving average after a share of all steps."""
        return self.final_ema_decay - (self.final_ema_decay - self.ema_decay) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class BYOL(MomentumLearner):
    """Maximizes the cosine similarity of predictions and targets. Rows are not compared with each other."""

    def prediction_loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared distance of normalized predictions and targets."""
        return 2 - 2 * F.cosine_similarity(predictions, targets).mean()


@dataclass(frozen=True)
class MoCo(MomentumLearner):
    """Maximizes the probability of the target of the same row among those of all rows of the batch."""

    temperature: float = 0.2

    def prediction_loss(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of the same row, computed in float32."""
        with torch.autocast(predictions.device.type, enabled=False):
            similarity = F.normalize(predictions, dim=1) @ F.normalize(targets, dim=1).T / self.temperature
            return F.cross_entropy(similarity, torch.arange(len(predictions), device=predictions.device))
