"""SoftMatch (Chen et al. 2023) on evidence: what was released, and guesses that weigh as much as they are sure.

Guesses come from a slow copy of the network (Tarvainen and Valpola 2017), which is steadier than the network itself,
and are brought to the classes' shares (Berthelot et al. 2020), so that no class grows at another's cost. Evidence is
the likelihood of ALIBI's loop, so that a row with a noisy label is neither labelled nor unlabelled, but as much of
both as the noise leaves.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.data.base import Features
from labeldp.learn.base import Learner, make_evidence_fn, released_row_ids, update_ema
from labeldp.learn.bayes import EvidenceLoss
from labeldp.learn.model import Model
from labeldp.releases.base import Release


@dataclass(frozen=True)
class SoftMatch(Learner):
    """Learn the evidence from weakly varied rows, and the slow copy's guesses from strongly varied ones.

    Each step takes one released row for `ratio` rows of all. It needs a `start` whose head knows the classes a little,
    such as a model trained on the released rows alone: it believes its first guesses. A label is doubted as much as its
    evidence allows: mark labels that are not certain by `relabel(codes, confidence)`. The model is the slow copy.
    """

    unsupervised_weight: float = 1.0
    unlabeled_ratio: int = 7
    ema_decay: float = 0.999  # of the slow copy, a step

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on all rows, with what the release says of some or all of them."""
        return self.fit_many(features, release, [start])[0]

    def fit_many(self, features: Features, release: Release, starts: Sequence[Model | None]) -> list[Model]:
        """Train a network from each start on the guesses of all of them.

        A network by itself believes its own mistakes; those of others that began elsewhere are others.
        """
        features = self._prepare_features(features, release)
        device, n_classes = features.device, len(release.space)
        networks = nn.ModuleList(
            [self._make_network(features, n_classes, start, index) for index, start in enumerate(starts)]
        )
        ema_networks = copy.deepcopy(networks).requires_grad_(False)
        released_ids, evidence, evidence_loss = (
            released_row_ids(release, device),
            make_evidence_fn(release, device),
            EvidenceLoss(),
        )
        pseudo_labeler = PseudoLabeler(
            fit_class_proportions([evidence(block_ids) for block_ids in torch.split(released_ids, 1 << 16)])
        ).to(device)

        def begin_step(fraction_done: float) -> None:
            update_ema(ema_networks, networks, self.ema_decay)

        def loss(row_ids: Tensor) -> Tensor:
            released_batch_ids = released_ids[
                torch.randint(len(released_ids), (max(1, len(row_ids) // self.unlabeled_ratio),), device=device)
            ]
            inputs = features.batch(row_ids)
            with torch.no_grad():
                weak_inputs = features.weak(inputs)
                probabilities = [torch.softmax(each(weak_inputs).float(), dim=1) for each in ema_networks]
                pseudo_labels, weights = pseudo_labeler(torch.stack(probabilities).mean(dim=0), evidence(row_ids))
            total = torch.zeros((), device=device)
            for network in networks:
                views = [features.weak(features.batch(released_batch_ids)), features.strong(inputs)]
                weak_inputs, strong_logits = network(torch.cat(views)).float().split([len(view) for view in views])
                unlabeled_loss = (F.cross_entropy(strong_logits, pseudo_labels, reduction="none") * weights).mean()
                total = (
                    total
                    + evidence_loss(weak_inputs, evidence(released_batch_ids))
                    + self.unsupervised_weight * unlabeled_loss
                )
            return total

        modules = nn.ModuleList([ema_networks, networks, pseudo_labeler])
        trained = self._train(modules, release, release.n_rows, loss, *starts, begin_step=begin_step)
        return [Model.trained_on(each, release, *starts) for each in next(trained.children()).children()]


class PseudoLabeler(nn.Module):
    """Brings probabilities to the classes' shares, adds the evidence, and says how much each guess weighs.

    A guess weighs 1 if it is surer than the average one, and less by a bell curve, half as wide as sureness spreads,
    the less sure it is. Averages are running ones, kept as buffers so that they go into checkpoints.
    """

    class_proportions: Tensor
    mean_probabilities: Tensor
    mean_confidence: Tensor
    confidence_variance: Tensor

    def __init__(self, class_proportions: Tensor, decay: float = 0.99) -> None:
        super().__init__()
        n_classes, self._decay = len(class_proportions), decay
        self.register_buffer("class_proportions", class_proportions)
        self.register_buffer("mean_probabilities", class_proportions.clone())
        self.register_buffer("mean_confidence", torch.full((), 1 / n_classes))
        self.register_buffer("confidence_variance", torch.ones(()))

    @torch.no_grad()
    def forward(self, probabilities: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        """Return the likeliest class of each row and its weight."""
        self._update_average(self.mean_probabilities, probabilities.mean(dim=0))
        aligned = (
            (probabilities * self.class_proportions / self.mean_probabilities.clamp_min(1e-6)).clamp_min(1e-12).log()
        )
        confidence, pseudo_labels = torch.softmax(aligned + evidence, dim=1).max(dim=1)
        self._update_average(self.mean_confidence, confidence.mean())
        self._update_average(self.confidence_variance, confidence.var())
        shortfall = (self.mean_confidence - confidence).clamp_min(0)
        return pseudo_labels, torch.exp(-2 * shortfall.square() / self.confidence_variance.clamp_min(1e-6))

    def _update_average(self, average: Tensor, value: Tensor) -> None:
        if self.training:
            average.lerp_(value, 1 - self._decay)


def fit_class_proportions(evidence: Sequence[Tensor], n_rounds: int = 50) -> Tensor:
    """Return the shares of the classes among rows, from blocks of their evidence, by expectation maximisation.

    It begins from equal shares and one row of each class, so that no class is impossible; where evidence says little,
    it stays near them.
    """
    n_classes = evidence[0].shape[1]
    proportions = torch.full((n_classes,), 1 / n_classes, device=evidence[0].device)
    for _ in range(n_rounds):
        counts = (
            torch.stack([torch.softmax(proportions.log() + block, dim=1).sum(dim=0) for block in evidence]).sum(dim=0)
            + 1
        )
        proportions = counts / counts.sum()
    return proportions
