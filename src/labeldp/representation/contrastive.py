"""SimCLR (Chen et al. 2020), a contrastive loss of views of rows; for tables, views are those of SCARF."""

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
    """An encoder that is trained by a contrastive loss. Views are crops and colors, or corrupted columns.

    With more than two views of fewer rows, a batch has several positive pairs for each view.

    Attributes:
        temperature: The temperature of similarities.
        hidden_features: The width of the projector's hidden layer; None for that of the encoding.
        projection_features: The width of the projector's output.
        n_views: The views of each row.
    """

    temperature: float = 0.5
    hidden_features: int | None = None
    projection_features: int = 128
    n_views: int = 2

    def fit(self, features: Features) -> Model:
        """Train the encoder without labels."""
        if self.n_views < 2:
            raise InputError("SimCLR needs at least two views of a row: choose n_views from 2.")
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
    """Return the normalized temperature-scaled cross-entropy (NT-Xent) over all ordered pairs of views.

    For a view of a row, the classes are another view of the row and all views of other rows. Similarities are computed
    in float32, because lower precision reduces the accuracy by percentage points.

    Args:
        projections: The first views of all rows, then the second ones, and so on.
        n_views: The views of each row.
        temperature: The temperature of similarities.

    Returns:
        The mean loss.
    """
    with torch.autocast(projections.device.type, enabled=False):
        z = F.normalize(projections.float(), dim=1)
        similarity = z @ z.T / temperature
        indices, n_rows = torch.arange(len(z), device=z.device), len(z) // n_views
        same_row = indices[:, None] % n_rows == indices % n_rows
        losses = []
        for shift in range(1, n_views):
            positive = indices.roll(shift * n_rows)
            excluded = same_row.scatter(1, positive[:, None], False)  # the view itself, and the row's other views
            losses.append(F.cross_entropy(similarity.masked_fill(excluded, -torch.inf), positive))
        return torch.stack(losses).mean()
