"""FixMatch (Sohn et al. 2020) on the rows that a release covers; all other rows are unlabeled."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from labeldp.data.base import Features
from labeldp.learn.base import Learner, hard_labels, released_row_ids
from labeldp.learn.model import Model
from labeldp.releases.base import Release


@dataclass(frozen=True)
class FixMatch(Learner):
    """Train on labels of weakly augmented rows, and on confident pseudo-labels of strongly augmented ones.

    A pseudo-label is the prediction for a weakly augmented row.

    Attributes:
        threshold: The least probability of a pseudo-label that is used.
        unsupervised_weight: The weight of the loss of pseudo-labels.
        unlabeled_ratio: The number of unlabeled rows for each labeled row of a step.
    """

    threshold: float = 0.95
    unsupervised_weight: float = 1.0
    unlabeled_ratio: int = 7

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on all rows, with the labels of those that the release covers."""
        features = self._prepare_features(features, release)
        device = features.device
        network = self._make_network(features, len(release.space), start)
        labeled_ids, labels = released_row_ids(release, device), hard_labels(release, device)

        def loss(unlabeled_ids: Tensor) -> Tensor:
            labeled_batch_ids = labeled_ids[
                torch.randint(len(labeled_ids), (max(1, len(unlabeled_ids) // self.unlabeled_ratio),), device=device)
            ]
            inputs = features.batch(unlabeled_ids)
            views = [features.weak(features.batch(labeled_batch_ids)), features.weak(inputs), features.strong(inputs)]
            # One pass for all three, so that batch normalization sees one population.
            labeled_logits, weak_logits, strong_logits = (
                network(torch.cat(views)).float().split([len(view) for view in views])
            )
            pseudo_labels, confident_mask = predict_confident(weak_logits, self.threshold)
            unlabeled_loss = (F.cross_entropy(strong_logits, pseudo_labels, reduction="none") * confident_mask).mean()
            return (
                F.cross_entropy(labeled_logits, labels[labeled_batch_ids]) + self.unsupervised_weight * unlabeled_loss
            )

        return Model.trained_on(self._train(network, release, release.n_rows, loss, start), release, start)


def predict_confident(logits: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return the most probable class of each row, and whether its probability reaches the threshold; no gradient."""
    confidence, predictions = torch.softmax(logits.detach().float(), dim=1).max(dim=1)
    return predictions, confidence >= threshold
