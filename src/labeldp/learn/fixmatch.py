"""FixMatch (Sohn et al. 2020) on the labels that a release marks; all other rows are unlabelled."""

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
    """Learn marked labels from weakly varied rows, and confident guesses from strongly varied ones.

    A guess on a weakly varied row counts if its probability reaches `threshold`; the strongly varied row must then
    agree. Each step takes one labelled row for `ratio` unlabelled ones.
    """

    threshold: float = 0.95
    unsupervised_weight: float = 1.0
    unlabeled_ratio: int = 7

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on all rows, with the labels of those that the release speaks of."""
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
            # One pass for all three, so that batch normalisation sees one population.
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
    """Return the likeliest class of each row, and whether its probability reaches the threshold; no gradient."""
    confidence, predictions = torch.softmax(logits.detach().float(), dim=1).max(dim=1)
    return predictions, confidence >= threshold
