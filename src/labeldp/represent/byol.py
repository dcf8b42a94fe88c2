"""BYOL (Grill et al. 2020): predict what a slowly moving copy of the network says of another view."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.features.base import Features
from labeldp.learn.model import Model
from labeldp.represent.base import Representation, projector


@dataclass(frozen=True)
class BYOL(Representation):
    """An encoder from features alone, without comparing rows with each other."""

    inertia: float = 0.99  # how slowly the copy follows
    hidden: int = 512
    projection: int = 128

    def fit(self, features: Features) -> Model:
        """Train the encoder; no label is looked at."""
        features, network = self._prepare(features)
        project = projector(network.width, self.hidden, self.projection).to(features.device)
        predict = projector(self.projection, self.hidden, self.projection).to(features.device)
        target = copy.deepcopy(nn.ModuleList([network, project])).requires_grad_(False)
        everything = nn.ModuleList([network, project, predict, target])

        def loss(rows: Tensor) -> Tensor:
            follow(target, nn.ModuleList([network, project]), self.inertia)
            batch = features.batch(rows)
            views = torch.cat([features.view(batch), features.view(batch)])
            said = predict(project(network.embed(views)))
            with torch.no_grad():
                other = target[1](target[0].embed(views)).roll(len(batch), 0)  # type: ignore[operator]
            return 2 - 2 * F.cosine_similarity(said.float(), other.float()).mean()

        return self._finish(everything, features, loss)


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, inertia: float) -> None:
    """Move `target` towards `source` by the share that inertia leaves."""
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), 1 - inertia)
