"""SimCLR (Chen et al. 2020): two views of a row must find each other. For tables this is SCARF's idea."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.features.base import Features
from labeldp.learn.model import Model
from labeldp.represent.base import Representation, projector


@dataclass(frozen=True)
class SimCLR(Representation):
    """An encoder from features alone. What a view is, the features know: crops and colours, or corrupted columns."""

    temperature: float = 0.5
    hidden: int | None = None  # as wide as the encoding
    projection: int = 128

    def fit(self, features: Features) -> Model:
        """Train the encoder; no label is looked at."""
        features, network = self._prepare(features)
        head = projector(network.width, self.hidden or network.width, self.projection).to(features.device)
        both = nn.ModuleList([network, head])

        def loss(rows: Tensor) -> Tensor:
            batch = features.batch(rows)
            views = torch.cat([features.view(batch, self.size) for _ in range(2)])
            return find_partner(head(network.embed(views)), self.temperature)

        return self._finish(both, features, loss)


def find_partner(projections: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of picking, for each row of (first views, second views), its other view among all rows.

    In float32 whatever the network's precision: rounded similarities cost points of accuracy.
    """
    with torch.autocast(projections.device.type, enabled=False):
        z = F.normalize(projections.float(), dim=1)
        likeness = z @ z.T / temperature
        likeness.fill_diagonal_(-torch.inf)
        half = len(z) // 2
        partner = torch.arange(len(z), device=z.device).roll(half)
        return F.cross_entropy(likeness, partner)
