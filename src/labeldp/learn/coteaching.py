"""Co-teaching (Han et al. 2018) and co-teaching+ (Yu et al. 2019): two networks select rows for each other."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.backbones import EnsembleNetwork
from labeldp.learn.base import Learner, hard_labels, released_row_ids
from labeldp.learn.model import Model
from labeldp.releases.base import Release


@dataclass(frozen=True)
class CoTeaching(Learner):
    """Train each network on the rows of a batch with small loss under the other network.

    Attributes:
        noise_rate: The share of wrong labels, which is the final share of rows that are left out; None for the exact
            rate that a release of labels states.
        ramp_fraction: The share of epochs over which that share grows from 0.
        plus: Whether to select among rows on which the two networks disagree, so that they stay different.
    """

    noise_rate: float | None = None
    ramp_fraction: float = 0.3
    plus: bool = False

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train both networks; the model averages them."""
        features = self._prepare_features(features, release)
        device, n_classes = features.device, len(release.space)
        noise_rate = get_noise_rate(release) if self.noise_rate is None else self.noise_rate
        pair = nn.ModuleList([self._make_network(features, n_classes, start, offset) for offset in (0, 1)])
        row_ids, labels = released_row_ids(release, device), hard_labels(release, device)
        forget_rate = torch.zeros((), device=device)  # a Python number would be a constant of the compiled loss
        select_disagreement = False

        def begin_epoch(epoch: int) -> None:
            nonlocal select_disagreement
            current_rate = noise_rate * min(1.0, epoch / max(1, self.ramp_fraction * self.training.epochs))
            forget_rate.fill_(current_rate)
            select_disagreement = self.plus and current_rate > 0

        def loss(positions: Tensor) -> Tensor:
            batch_ids = row_ids[positions]
            inputs, batch_labels = features.weak(features.batch(batch_ids)), labels[batch_ids]
            first_logits, second_logits = (network(inputs).float() for network in pair)
            candidate_mask = (
                disagreement_mask(first_logits, second_logits)
                if select_disagreement
                else torch.ones_like(batch_labels, dtype=torch.bool)
            )
            losses = [
                F.cross_entropy(logits, batch_labels, reduction="none") for logits in (first_logits, second_logits)
            ]
            selected = [select_small_loss(each.detach(), forget_rate, candidate_mask) for each in losses]
            return (losses[0] * selected[1]).sum() / selected[1].sum() + (losses[1] * selected[0]).sum() / selected[
                0
            ].sum()

        trained = self._train(pair, release, len(row_ids), loss, start, begin_epoch=begin_epoch)
        return Model.trained_on(EnsembleNetwork(list(trained.children())), release, start)


def select_small_loss(losses: Tensor, forget_rate: float | Tensor, candidate_mask: Tensor) -> Tensor:
    """Mark the candidates of smallest loss: all but a share `forget_rate`, and at least one row."""
    n_selected = (candidate_mask.sum() * (1 - forget_rate)).ceil().clamp_min(1)
    # Without candidates, all rows are candidates. A branch would synchronize a GPU in every step.
    candidate_mask = candidate_mask | ~candidate_mask.any()
    rank = torch.where(candidate_mask, losses, torch.inf).argsort().argsort()
    return ((rank < n_selected) & candidate_mask).float()


def disagreement_mask(first_logits: Tensor, second_logits: Tensor) -> Tensor:
    """Mark the rows for which two networks predict different classes."""
    return first_logits.argmax(dim=1) != second_logits.argmax(dim=1)


def get_noise_rate(release: Release) -> float:
    """Return the share of wrong labels, averaged over true classes, from the noise matrix of a release."""
    try:
        return float(1 - release.noise_matrix().diagonal().mean())
    except InputError:
        raise InputError(f"{release.mechanism} does not state its noise rate: give noise_rate.") from None
