"""FixMatch (Sohn et al. 2020) on the labels that a release marks; all other rows are unlabelled."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from labeldp.data.base import Features
from labeldp.learn.base import Learner, active_rows, hard_labels
from labeldp.learn.model import Model
from labeldp.releases.base import Release


@dataclass(frozen=True)
class FixMatch(Learner):
    """Learn marked labels from weakly varied rows, and confident guesses from strongly varied ones.

    A guess on a weakly varied row counts if its probability reaches `threshold`; the strongly varied row must then
    agree. Each step takes one labelled row for `ratio` unlabelled ones.
    """

    threshold: float = 0.95
    weight: float = 1.0
    ratio: int = 7

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on all rows, with the labels of those that the release speaks of."""
        features = self._place(features, release)
        device = features.device
        network = self._network(features, len(release.space), start)
        labelled, labels = active_rows(release, device), hard_labels(release, device)

        def loss(unlabelled: Tensor) -> Tensor:
            known = labelled[torch.randint(len(labelled), (max(1, len(unlabelled) // self.ratio),), device=device)]
            clean = features.batch(unlabelled)
            views = [features.weak(features.batch(known)), features.weak(clean), features.strong(clean)]
            # One pass for all three, so that batch normalisation sees one population.
            known_logits, weak, strong = network(torch.cat(views)).float().split([len(view) for view in views])
            guess, sure = confident(weak, self.threshold)
            agree = (F.cross_entropy(strong, guess, reduction="none") * sure).mean()
            return F.cross_entropy(known_logits, labels[known]) + self.weight * agree

        return Model.trained_on(self._train(network, release, release.rows, loss, start), release, start)


def confident(logits: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return the likeliest class of each row, and whether its probability reaches the threshold; no gradient."""
    chance, guess = torch.softmax(logits.detach().float(), dim=1).max(dim=1)
    return guess, chance >= threshold
