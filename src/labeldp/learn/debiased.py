"""The unbiased loss (Ghazi et al. 2021, Theorem 5), whose gradients are unbiased because it is linear in the label."""

from dataclasses import dataclass

import torch
from torch import Tensor

from labeldp.data.base import Features
from labeldp.learn.base import Learner, released_row_ids, soft_cross_entropy
from labeldp.learn.model import Model
from labeldp.releases.base import Release


@dataclass(frozen=True)
class Debiased(Learner):
    """Train on unbiased estimates of one-hot labels: the inverse channel applied to released labels.

    The estimates have negative entries, so a flexible network can overfit to a loss far below zero. The learner is for
    linear models, for which the bound is proved, and for networks with short training. With candidate sets (RRTop-k),
    estimates are unbiased for labels among the candidates.
    """

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on the rows that were released."""
        features = self._prepare_features(features, release)
        network = self._make_network(features, len(release.space), start)
        row_ids = released_row_ids(release, features.device)
        unbiased = torch.from_numpy(release.unbiased_labels()).float().to(features.device)

        def loss(positions: Tensor) -> Tensor:
            batch_ids = row_ids[positions]
            return soft_cross_entropy(network(features.weak(features.batch(batch_ids))), unbiased[batch_ids])

        return Model.trained_on(self._train(network, release, len(row_ids), loss, start), release, start)
