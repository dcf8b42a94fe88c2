"""ALIBI's training (Malek et al. 2021) for any release: targets are posteriors under the current model as prior."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.base import Learner, make_evidence_fn, released_row_ids, soft_cross_entropy
from labeldp.learn.model import Model
from labeldp.learn.supervised import draw_mixup
from labeldp.releases.base import Release


@dataclass(frozen=True)
class Bayes(Learner):
    """Train on the posterior p(label | release, features), recomputed at every step.

    The model's prediction is the prior, so a better model extracts more from the same noisy labels.

    Attributes:
        denoise: "bayes" for that posterior. The paper's baselines do not use the model: "clamp" clamps the negative
            entries of the unbiased vector and normalizes it; "project" projects the vector on the simplex.
        augment: The strength of the augmentation.
        mixup: Above 0, pairs of rows are mixed as by `Supervised`, and the losses of both posteriors are weighted by
            the mixing weight.
    """

    denoise: Literal["bayes", "clamp", "project"] = "bayes"
    augment: Literal["weak", "strong"] = "weak"
    mixup: float = 0.0

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on the rows that were released."""
        if release.kind == "prior" and self.denoise == "bayes":
            raise InputError(
                f"{release.mechanism} gives a prior, which must not be multiplied by predictions of the model: "
                'use Supervised(targets="posteriors").'
            )
        features = self._prepare_features(features, release)
        device = features.device
        network = self._make_network(features, len(release.space), start)
        row_ids, evidence = released_row_ids(release, device), make_evidence_fn(release, device)
        augment = features.weak if self.augment == "weak" else features.strong
        fixed_targets = None if self.denoise == "bayes" else denoise_labels(release, self.denoise).to(device)

        def target_loss(logits: Tensor, batch_ids: Tensor) -> Tensor:
            target = posterior(logits, evidence(batch_ids)) if fixed_targets is None else fixed_targets[batch_ids]
            return soft_cross_entropy(logits, target)

        def loss(positions: Tensor) -> Tensor:
            batch_ids = row_ids[positions]
            inputs = augment(features.batch(batch_ids))
            if not self.mixup:
                return target_loss(network(inputs), batch_ids)
            mix_weight, permutation = draw_mixup(len(inputs), self.mixup, inputs.device)
            logits = network(mix_weight * inputs + (1 - mix_weight) * inputs[permutation])
            return mix_weight * target_loss(logits, batch_ids) + (1 - mix_weight) * target_loss(
                logits, batch_ids[permutation]
            )

        return Model.trained_on(self._train(network, release, len(row_ids), loss, start), release, start)


def posterior(logits: Tensor, evidence: Tensor) -> Tensor:
    """Return p(label | release, features) by Bayes' rule with the model as prior; it has no gradient."""
    return torch.softmax(F.log_softmax(logits.detach().float(), dim=1) + evidence, dim=1)


class EvidenceLoss(nn.Module):
    """The loss -log p(release | features), which `Bayes` minimizes, for the user's own training loop.

    Its gradient equals that of the cross-entropy with the posterior, because d logsumexp(log p + e) is the mean of
    d log p under the posterior.
    """

    def forward(self, logits: Tensor, evidence: Tensor) -> Tensor:
        """Return the mean loss of a batch; `evidence` are its rows of `release.log_evidence()`."""
        return -torch.logsumexp(F.log_softmax(logits.float(), dim=1) + evidence, dim=1).mean()


def denoise_labels(release: Release, method: Literal["bayes", "clamp", "project"]) -> Tensor:
    """Return a distribution over classes for each row, computed from its unbiased vector alone."""
    vectors = torch.from_numpy(release.unbiased_labels()).float()
    if method == "project":
        return project_on_simplex(vectors)
    clamped = vectors.clamp_min(0) + 1e-9
    return clamped / clamped.sum(dim=1, keepdim=True)


def project_on_simplex(vectors: Tensor) -> Tensor:
    """Return the nearest distribution to each vector (Duchi et al. 2008)."""
    sorted_vectors = vectors.sort(dim=1, descending=True).values
    thresholds = (sorted_vectors.cumsum(dim=1) - 1) / torch.arange(1, vectors.shape[1] + 1, device=vectors.device)
    support_size = (sorted_vectors > thresholds).sum(dim=1, keepdim=True)
    return (vectors - thresholds.gather(1, support_size - 1)).clamp_min(0)
