"""SimCLR (Chen et al. 2020): the views of a row must find each other. For tables this is SCARF's idea."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.model import Model
from labeldp.representation.base import Representation, make_projector


@dataclass(frozen=True)
class SimCLR(Representation):
    """An encoder from features alone. What a view is, the features know: crops and colours, or corrupted columns.

    More than two views of fewer rows make a batch that learns more from each row: every view has several partners.
    """

    temperature: float = 0.5
    hidden_features: int | None = None  # as wide as the encoding
    projection_features: int = 128
    n_views: int = 2

    def fit(self, features: Features) -> Model:
        """Train the encoder; no label is looked at."""
        if self.n_views < 2:
            raise InputError("SimCLR needs at least two views of a row: they must find each other.")
        features, network = self._prepare(features)
        head = make_projector(network.width, self.hidden_features or network.width, self.projection_features).to(
            features.device
        )
        modules = nn.ModuleList([network, head])

        def loss(row_ids: Tensor) -> Tensor:
            batch = features.batch(row_ids)
            views = torch.cat([features.view(batch, self.view_size) for _ in range(self.n_views)])
            return nt_xent_loss(head(network.embed(views)), self.n_views, self.temperature)

        return self._train_encoder(modules, features, loss)


def nt_xent_loss(projections: Tensor, n_views: int, temperature: float) -> Tensor:
    """Cross-entropy of picking, for a view of a row, another view of it among that one and all views of other rows.

    It is the mean over all ordered pairs of views. `projections` holds the first views of all rows, then the second
    ones, and so on. In float32 whatever the network's precision: rounded similarities cost points of accuracy.
    """
    with torch.autocast(projections.device.type, enabled=False):
        z = F.normalize(projections.float(), dim=1)
        similarity = z @ z.T / temperature
        indices, n_rows = torch.arange(len(z), device=z.device), len(z) // n_views
        same_row = indices[:, None] % n_rows == indices % n_rows
        losses = []
        for shift in range(1, n_views):
            positive = indices.roll(shift * n_rows)
            excluded = same_row.scatter(1, positive[:, None], False)  # the view itself, and its other partners
            losses.append(F.cross_entropy(similarity.masked_fill(excluded, -torch.inf), positive))
        return torch.stack(losses).mean()
