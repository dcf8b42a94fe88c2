"""Supervised training on released labels or on their posteriors, with mixup."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from labeldp.data.base import Features
from labeldp.learn.base import Learner, hard_labels, make_evidence_fn, released_row_ids, soft_cross_entropy
from labeldp.learn.model import Model
from labeldp.releases.base import Release


@dataclass(frozen=True)
class Supervised(Learner):
    """Train on the released labels, or on the posterior of each row under a uniform prior.

    Attributes:
        targets: "labels" or "posteriors".
        mixup: Above 0, pairs of rows are mixed by a weight from Beta(mixup, mixup) (Zhang et al. 2018), which reduces
            the memorization of noisy labels.
        augment: The strength of the augmentation.
        label_smoothing: The share of each target that is spread over all classes.
    """

    targets: Literal["labels", "posteriors"] = "labels"
    mixup: float = 0.0
    augment: Literal["weak", "strong"] = "weak"
    label_smoothing: float = 0.0

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on the rows that were released."""
        features = self._prepare_features(features, release)
        n_classes, device = len(release.space), features.device
        network = self._make_network(features, n_classes, start)
        row_ids = released_row_ids(release, device)
        evidence = make_evidence_fn(release, device)
        labels = hard_labels(release, device) if self.targets == "labels" else row_ids
        augment = features.weak if self.augment == "weak" else features.strong

        def make_targets(batch_ids: Tensor) -> Tensor:
            if self.targets == "posteriors":
                return torch.softmax(evidence(batch_ids), dim=1)
            return F.one_hot(labels[batch_ids], n_classes).float()

        def loss(positions: Tensor) -> Tensor:
            batch_ids = row_ids[positions]
            inputs = augment(features.batch(batch_ids))
            targets = (1 - self.label_smoothing) * make_targets(batch_ids) + self.label_smoothing / n_classes
            if self.mixup:
                inputs, targets = mix_batch(inputs, targets, self.mixup)
            return soft_cross_entropy(network(inputs), targets)

        return Model.trained_on(self._train(network, release, len(row_ids), loss, start), release, start)


def mix_batch(inputs: Tensor, targets: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Mix each row of a batch with another row, by one weight for all rows."""
    mix_weight, permutation = draw_mixup(len(inputs), alpha, inputs.device)
    return mix_weight * inputs + (1 - mix_weight) * inputs[permutation], mix_weight * targets + (
        1 - mix_weight
    ) * targets[permutation]


def draw_mixup(n_rows: int, alpha: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw a mixing weight from Beta(alpha, alpha) and a permutation of a batch."""
    permutation = torch.rand(n_rows, device=device).argsort()  # torch fails to compile rows taken by randperm
    return sample_mix_weight(alpha, device), permutation


def sample_mix_weight(alpha: float, device: torch.device) -> Tensor:
    """Draw from Beta(alpha, alpha).

    For an integer alpha it is the median of 2 alpha - 1 uniform numbers, drawn on the device. For others it is drawn on
    the CPU, for which a compiled loss waits.
    """
    if alpha == int(alpha):
        return torch.rand(2 * int(alpha) - 1, device=device).sort().values[int(alpha) - 1]
    return torch.distributions.Beta(alpha, alpha).sample().to(device)
