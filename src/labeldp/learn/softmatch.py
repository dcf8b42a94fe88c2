"""SoftMatch (Chen et al. 2023) on evidence: the likelihood of released labels, and weighted pseudo-labels.

Pseudo-labels come from a moving average of the network (Tarvainen and Valpola 2017), which varies less than the
network. They are aligned to the class proportions (Berthelot et al. 2020), so that no class grows at the cost of
another one. Evidence has ALIBI's likelihood, so a row with a noisy label contributes according to its noise.
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
    """Train on the evidence of weakly augmented rows, and on pseudo-labels of strongly augmented ones.

    Give a `start` with some accuracy, a model of the released rows alone for example, because the first pseudo-labels
    are its predictions. Mark uncertain labels by `relabel(codes, confidence)`. The model is the moving average.

    Attributes:
        unsupervised_weight: The weight of the loss of pseudo-labels.
        unlabeled_ratio: The number of rows with pseudo-labels for each released row of a step.
        ema_decay: The decay of the moving average in each step.
    """

    unsupervised_weight: float = 1.0
    unlabeled_ratio: int = 7
    ema_decay: float = 0.999

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on all rows, with the evidence of those that the release covers."""
        return self.fit_many(features, release, [start])[0]

    def fit_many(self, features: Features, release: Release, starts: Sequence[Model | None]) -> list[Model]:
        """Train one network from each start on the mean predictions of all of them.

        A single network confirms its own errors; networks from different starts make different errors.
        """
        features = self._prepare_features(features, release)
        device, n_classes = features.device, len(release.space)
        networks = nn.ModuleList(
            [self._make_network(features, n_classes, start, index) for index, start in enumerate(starts)]
        )
        ema_networks = copy.deepcopy(networks).requires_grad_(False)
        released_ids = released_row_ids(release, device)
        evidence = make_evidence_fn(release, device)
        evidence_loss = EvidenceLoss()
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
    """Aligns probabilities to the class proportions, adds the evidence, and weights the pseudo-labels.

    The weight is 1 if the confidence is above its mean. Below, it falls like a Gaussian whose standard deviation is
    half of that of the confidence. Means and variance are running averages, stored as buffers for checkpoints.

    Args:
        class_proportions: The class proportions.
        decay: The decay of the running averages in each step.
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
        """Return the most probable class of each row and its weight."""
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
    """Return the class proportions of maximum likelihood, from blocks of evidence, by expectation maximization.

    The initial proportions are equal, and one pseudo-row of each class keeps them positive. With weak evidence, they
    stay nearly equal.
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
