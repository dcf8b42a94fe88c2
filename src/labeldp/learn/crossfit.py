"""CrossFit: two networks that are trained on the evidence of one half of the rows each, and one that combines them.

A network that is trained on noisy labels memorizes them, and then its predictions confirm the noise. Here, a network
predicts rows whose evidence it was not trained on. Its prediction is the prior of such a row, and the posterior is the
target of the other network. These predictions are independent of the noise, so the evidence can calibrate them.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.base import (
    Learner,
    first_checkpoint,
    make_evidence_fn,
    released_row_ids,
    soft_cross_entropy,
    update_ema,
)
from labeldp.learn.model import Model
from labeldp.learn.supervised import Supervised
from labeldp.releases.base import Release

_INVERSE_TEMPERATURES = torch.logspace(-1.5, 0.5, 41)  # from nearly uniform probabilities to sharpened ones
_BLOCK_ROWS = 2048  # rows of one prediction outside of training

EvidenceFn = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class CrossFit(Learner):
    """Train a pair of networks on one half each, and from the start a third one on the pair's posteriors of all rows.

    Each network of the pair is trained on strongly augmented rows of its half. Its targets are posteriors whose prior
    is the moving average (Tarvainen and Valpola 2017) of the other network. Give a `start` with some accuracy that was
    not trained on this release.

    Attributes:
        ema_decay: The decay of the moving averages in each step.
    """

    ema_decay: float = 0.998

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on the rows that were released."""
        pseudo_labels = self.posteriors(features, release, [start])
        final_learner = Supervised(self.backbone, self.training, targets="posteriors", augment="strong")
        return final_learner.fit(features, pseudo_labels, start)

    def posteriors(self, features: Features, release: Release, starts: Sequence[Model | None]) -> Release:
        """Return the posteriors of the pair for the released rows.

        Args:
            features: The rows.
            release: Their evidence, a likelihood.
            starts: The starts, of which the first and the last one are those of the pair.

        Returns:
            A release of the posteriors.
        """
        if release.kind == "prior":
            raise InputError(f"{release.mechanism} gives a prior, and CrossFit needs likelihoods: use SoftMatch.")
        features = self._prepare_features(features, release)
        device, n_classes = features.device, len(release.space)
        row_ids, evidence = released_row_ids(release, device), make_evidence_fn(release, device)
        if len(row_ids) < 2:
            raise InputError("CrossFit needs two rows or more, one for each network.")
        permutation = torch.randperm(len(row_ids), generator=torch.Generator().manual_seed(self.training.seed))
        # The rows of whose evidence each network is trained.
        half_row_ids = row_ids[permutation.to(device)][: len(row_ids) // 2 * 2].view(2, -1)
        pair_learner = replace(
            self, training=replace(self.training, checkpoint=first_checkpoint(self.training.checkpoint))
        )
        ema_pair = pair_learner.train_pair(
            features, release, half_row_ids, evidence, [*starts[:1], *starts[-1:]] or [None, None]
        )
        posteriors = torch.zeros(release.n_rows, n_classes, device=device)
        for half_ids, network in zip(half_row_ids, reversed(ema_pair), strict=True):
            posteriors[half_ids] = tempered_posterior(network, features, half_ids, evidence)
        return release.with_posterior(
            posteriors.cpu().numpy(), derived_from=[start for start in starts if start is not None]
        )

    def train_pair(
        self,
        features: Features,
        release: Release,
        half_row_ids: Tensor,
        evidence: EvidenceFn,
        starts: Sequence[Model | None],
    ) -> list[nn.Module]:
        """Train a pair of networks.

        Args:
            features: The rows, on the device of the training.
            release: The release, which identifies checkpoints.
            half_row_ids: The ids of the rows of each half, (2, rows).
            evidence: Returns the log-evidence of rows.
            starts: The start of each network.

        Returns:
            The moving averages of both networks, of which the first one was trained on the first half.
        """
        device, n_classes = features.device, len(release.space)
        pair = nn.ModuleList(
            [self._make_network(features, n_classes, start, index) for index, start in enumerate(starts)]
        )
        ema_pair = copy.deepcopy(pair).requires_grad_(False)
        inverse_temperatures = torch.ones(2, device=device)

        def begin_epoch(epoch: int) -> None:
            for index, other_ema in enumerate((ema_pair[1], ema_pair[0])):
                inverse_temperatures[index] = fit_inverse_temperature(
                    other_ema, features, half_row_ids[index], evidence
                )

        def begin_step(fraction_done: float) -> None:
            update_ema(ema_pair, pair, self.ema_decay)

        def loss(positions: Tensor) -> Tensor:
            total = torch.zeros((), device=device)
            for index, (network, other_ema) in enumerate(zip(pair, (ema_pair[1], ema_pair[0]), strict=True)):
                batch_ids = half_row_ids[index, positions]
                inputs = features.batch(batch_ids)
                with torch.no_grad():
                    log_prior = torch.log_softmax(other_ema(features.weak(inputs)).float(), dim=1)
                    posterior = torch.softmax(inverse_temperatures[index] * log_prior + evidence(batch_ids), dim=1)
                total = total + soft_cross_entropy(network(features.strong(inputs)), posterior)
            return total

        modules, hooks = nn.ModuleList([ema_pair, pair]), {"begin_epoch": begin_epoch, "begin_step": begin_step}
        trained = self._train(modules, release, half_row_ids.shape[1], loss, *starts, **hooks)
        return list(next(trained.children()).eval().children())


@torch.no_grad()
def tempered_posterior(network: nn.Module, features: Features, row_ids: Tensor, evidence: EvidenceFn) -> Tensor:
    """Return posteriors of rows that the network was not trained on, with a temperature fitted to their evidence."""
    inverse_temperature = fit_inverse_temperature(network, features, row_ids, evidence)
    blocks = [
        torch.softmax(
            inverse_temperature * torch.log_softmax(network(features.batch(block_ids)).float(), dim=1)
            + evidence(block_ids),
            dim=1,
        )
        for block_ids in torch.split(row_ids, _BLOCK_ROWS)
    ]
    return torch.cat(blocks)


@torch.no_grad()
def fit_inverse_temperature(network: nn.Module, features: Features, row_ids: Tensor, evidence: EvidenceFn) -> Tensor:
    """Return the exponent of a network's probabilities that maximizes the likelihood of the evidence of some rows.

    The network must not have been trained on that evidence, or the exponent would be too large.
    """
    inverse_temperatures = _INVERSE_TEMPERATURES.to(row_ids.device)
    log_likelihoods = torch.zeros_like(inverse_temperatures)
    for block_ids in torch.split(row_ids, _BLOCK_ROWS):
        log_probabilities = torch.log_softmax(network(features.batch(block_ids)).float(), dim=1)
        tempered = torch.log_softmax(inverse_temperatures[:, None, None] * log_probabilities, dim=2)
        log_likelihoods += torch.logsumexp(tempered + evidence(block_ids), dim=2).sum(dim=1)
    return inverse_temperatures[log_likelihoods.argmax()]
