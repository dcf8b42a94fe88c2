"""Plain supervised training on released labels or on their posteriors, with mixup."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from labeldp.data.base import Features
from labeldp.learn.base import Learner, active_rows, evidence_of, hard_labels, soft_cross_entropy
from labeldp.learn.model import Model
from labeldp.releases.base import Release


@dataclass(frozen=True)
class Supervised(Learner):
    """Fit the released labels, or the posterior of each row under equal odds.

    With `mixup` above 0, pairs of rows are mixed with a share drawn from Beta(mixup, mixup) (Zhang et al. 2018),
    which keeps a network from learning noisy labels by heart. `augment` says how much rows are varied. `smoothing` is
    the share of each target that is spread over all classes.
    """

    targets: Literal["labels", "posteriors"] = "labels"
    mixup: float = 0.0
    augment: Literal["weak", "strong"] = "weak"
    smoothing: float = 0.0

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on the rows that were released."""
        features = self._place(features, release)
        classes, device = len(release.space), features.device
        network = self._network(features, classes, start)
        rows = active_rows(release, device)
        evidence = evidence_of(release, device)
        labels = hard_labels(release, device) if self.targets == "labels" else rows
        vary = features.weak if self.augment == "weak" else features.strong

        def target(chosen: Tensor) -> Tensor:
            if self.targets == "posteriors":
                return torch.softmax(evidence(chosen), dim=1)
            return F.one_hot(labels[chosen], classes).float()

        def loss(positions: Tensor) -> Tensor:
            chosen = rows[positions]
            inputs = vary(features.batch(chosen))
            targets = (1 - self.smoothing) * target(chosen) + self.smoothing / classes
            if self.mixup:
                inputs, targets = mix(inputs, targets, self.mixup)
            return soft_cross_entropy(network(inputs), targets)

        return Model.trained_on(self._train(network, release, len(rows), loss, start), release, start)


def mix(inputs: Tensor, targets: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Mix each row with another one of the batch, by one share for all of them."""
    share, other = partners(len(inputs), alpha, inputs.device)
    return share * inputs + (1 - share) * inputs[other], share * targets + (1 - share) * targets[other]


def partners(rows: int, alpha: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw a share from Beta(alpha, alpha), and another row for each one of a batch."""
    other = torch.rand(rows, device=device).argsort()  # torch fails to compile rows taken by randperm
    return beta_share(alpha, device), other


def beta_share(alpha: float, device: torch.device) -> Tensor:
    """Draw from Beta(alpha, alpha): for a whole alpha the middle one of 2 alpha - 1 uniform numbers, on the device.

    Others are drawn on the CPU, for which a compiled loss must wait.
    """
    if alpha == int(alpha):
        return torch.rand(2 * int(alpha) - 1, device=device).sort().values[int(alpha) - 1]
    return torch.distributions.Beta(alpha, alpha).sample().to(device)
