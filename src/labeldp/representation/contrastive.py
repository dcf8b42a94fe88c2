"""SimCLR (Chen et al. 2020): the views of a row must find each other. For tables this is SCARF's idea."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.model import Model
from labeldp.representation.base import Representation, projector


@dataclass(frozen=True)
class SimCLR(Representation):
    """An encoder from features alone. What a view is, the features know: crops and colours, or corrupted columns.

    More than two views of fewer rows make a batch that learns more from each row: every view has several partners.
    """

    temperature: float = 0.5
    hidden: int | None = None  # as wide as the encoding
    projection: int = 128
    views: int = 2

    def fit(self, features: Features) -> Model:
        """Train the encoder; no label is looked at."""
        if self.views < 2:
            raise InputError("SimCLR needs at least two views of a row: they must find each other.")
        features, network = self._prepare(features)
        head = projector(network.width, self.hidden or network.width, self.projection).to(features.device)
        both = nn.ModuleList([network, head])

        def loss(rows: Tensor) -> Tensor:
            batch = features.batch(rows)
            views = torch.cat([features.view(batch, self.size) for _ in range(self.views)])
            return find_partners(head(network.embed(views)), self.views, self.temperature)

        return self._finish(both, features, loss)


def find_partners(projections: Tensor, views: int, temperature: float) -> Tensor:
    """Cross-entropy of picking, for a view of a row, another view of it among that one and all views of other rows.

    It is the mean over all ordered pairs of views. `projections` holds the first views of all rows, then the second
    ones, and so on. In float32 whatever the network's precision: rounded similarities cost points of accuracy.
    """
    with torch.autocast(projections.device.type, enabled=False):
        z = F.normalize(projections.float(), dim=1)
        likeness = z @ z.T / temperature
        places, rows = torch.arange(len(z), device=z.device), len(z) // views
        same_row = places[:, None] % rows == places % rows
        losses = []
        for shift in range(1, views):
            partner = places.roll(shift * rows)
            neither = same_row.scatter(1, partner[:, None], False)  # the view itself, and its other partners
            losses.append(F.cross_entropy(likeness.masked_fill(neither, -torch.inf), partner))
        return torch.stack(losses).mean()
