"""The student of PATE, a semi-supervised GAN (Salimans et al. 2016), and of PATE++ (Zhang et al. 2021).

A discriminator scores K classes; the class of generated rows has the logit 0, so that a row is real with odds
Z = sum of exp(logits). Labeled rows train the class scores; unlabeled and generated rows train the odds Z. The
generator is trained to match the mean encoding of real rows. PATE++ has two discriminators that select labeled rows for
each other, and removes labels that are probably wrong.
"""

from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.backbones import EnsembleNetwork, Network
from labeldp.learn.base import Learner, first_checkpoint, hard_labels, released_row_ids
from labeldp.learn.coteaching import disagreement_mask, select_small_loss
from labeldp.learn.model import Model
from labeldp.releases.base import Release

_HIDDEN_WIDTH = 500  # width of the generator's hidden layers
_RANGE_ROWS = 4096  # rows of a block from which the range of the input is computed


@dataclass(frozen=True)
class SemiGAN(Learner):
    """Train on the labels of some rows and on the distribution of all rows.

    With two discriminators, each is trained on the labeled rows of a batch with small loss under the other one. With
    `remove_fraction` above 0, there are two trainings (PATE++). The first one counts how often both discriminators
    contradict a label while they disagree. The second one starts anew, without the labels of the highest counts.

    Attributes:
        n_discriminators: 1 or 2.
        noise_rate: An estimate of the share of wrong labels, which is the final share of rows that are left out.
        ramp_epochs: The epochs over which that share grows from 0.
        plus: Whether to select among rows on which the discriminators disagree (PATE+).
        remove_fraction: The share of labels that the second training removes.
        count_decay: The factor of the counts of earlier epochs.
        augment: The augmentation of real rows.
        latent_dim: The dimension of the generator's input.
    """

    n_discriminators: Literal[1, 2] = 1
    noise_rate: float = 0.2
    ramp_epochs: int = 15
    plus: bool = False
    remove_fraction: float = 0.0
    count_decay: float = 0.9
    augment: Literal["none", "weak"] = "weak"
    latent_dim: int = 100

    def __post_init__(self) -> None:
        if self.n_discriminators not in (1, 2) or (self.n_discriminators == 1 and (self.plus or self.remove_fraction)):
            raise InputError("n_discriminators is 1 or 2; plus and remove_fraction need 2, which can disagree.")
        if not (0 <= self.noise_rate < 1 and 0 <= self.remove_fraction < 1 and 0 < self.count_decay <= 1):
            raise InputError(
                "noise_rate and remove_fraction are from 0 to below 1, and count_decay is above 0 and at most 1."
            )

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train, twice if labels are to be removed; the model averages the probabilities of its discriminators."""
        if not self.remove_fraction:
            return self.fit_and_count_contradictions(features, release, start)[0]
        single_pass = replace(self, remove_fraction=0.0)
        first_pass = replace(
            single_pass, training=replace(self.training, checkpoint=first_checkpoint(self.training.checkpoint))
        )
        _, counts = first_pass.fit_and_count_contradictions(features, release, start)
        return single_pass.fit(
            features, release.keep(select_trusted_rows(release, counts, self.remove_fraction)), start
        )

    def fit_and_count_contradictions(
        self, features: Features, release: Release, start: Model | None = None
    ) -> tuple[Model, NDArray[np.float32]]:
        """Train once; also return the decayed count of contradictions of each row's label by both discriminators."""
        features = self._prepare_features(features, release)
        device, n_classes = features.device, len(release.space)
        labeled_ids, labels = released_row_ids(release, device), hard_labels(release, device)
        other_ids = torch.arange(len(features), device=device)[labels < 0]
        unlabeled_ids = other_ids if len(other_ids) else labeled_ids  # if all rows have labels, they are real rows, too
        networks = [
            _require_network(self._make_network(features, n_classes, start, index))
            for index in range(self.n_discriminators)
        ]
        gan = _GAN(networks, _Generator(features, self.latent_dim).to(device), len(labeled_ids)).to(device)
        n_pairs = max(len(labeled_ids), len(unlabeled_ids))
        pairing = torch.arange(n_pairs, device=device)
        forget_rate = torch.zeros((), device=device)  # a Python number would be a constant of the compiled loss
        select_disagreement = torch.zeros((), dtype=torch.bool, device=device)
        augment = features.weak if self.augment == "weak" else (lambda batch: batch)

        def begin_epoch(epoch: int) -> None:
            # The shorter list is repeated, with other pairs in every epoch.
            pairing.copy_(torch.randperm(n_pairs, device=device))
            forget_rate.fill_(self.noise_rate * min(1.0, epoch / max(1, self.ramp_epochs)))
            select_disagreement.fill_(self.plus and epoch > 0)  # untrained networks disagree on nearly all rows
            if epoch:
                gan.end_epoch(self.count_decay)

        def loss(positions: Tensor) -> Tensor:
            labeled_positions = pairing[positions] % len(labeled_ids)
            labeled_batch_ids, batch_labels = labeled_ids[labeled_positions], labels[labeled_ids[labeled_positions]]
            unlabeled_batch_ids = unlabeled_ids[positions % len(unlabeled_ids)]
            generated = gan.generator(torch.rand(len(positions), self.latent_dim, device=device))
            real = augment(features.batch(labeled_batch_ids)), augment(features.batch(unlabeled_batch_ids))
            outputs = [discriminate(network, *real, generated) for network in networks]
            losses = [F.cross_entropy(output.labeled_logits, batch_labels, reduction="none") for output in outputs]
            total = sum(
                (output.discriminator_loss + output.generator_loss / len(outputs) for output in outputs),
                forget_rate.new_zeros(()),
            )
            if len(outputs) == 1:
                return total + losses[0].mean()
            first_logits, second_logits = (output.labeled_logits.detach() for output in outputs)
            disagreeing = disagreement_mask(first_logits, second_logits)
            gan.epoch_marks.index_add_(
                0, labeled_positions, contradiction_mask(first_logits, second_logits, batch_labels).float()
            )
            selected = [
                select_small_loss(each.detach(), forget_rate, disagreeing | ~select_disagreement) for each in losses
            ]
            for own_losses, selection in zip(losses, reversed(selected), strict=True):
                total = total + (own_losses * selection).sum() / selection.sum()
            return total

        trained = cast(_GAN, self._train(gan, release, n_pairs, loss, start, begin_epoch=begin_epoch))
        trained.end_epoch(self.count_decay)
        counts = np.zeros(release.n_rows, np.float32)
        counts[labeled_ids.cpu().numpy()] = trained.counts.cpu().numpy()
        discriminators = list(trained.discriminators)
        network = discriminators[0] if len(discriminators) == 1 else EnsembleNetwork(discriminators)
        return Model.trained_on(network, release, start), counts


@dataclass(frozen=True)
class DiscriminatorOutput:
    """The outputs of one discriminator for a batch.

    Attributes:
        labeled_logits: The class scores of labeled rows.
        discriminator_loss: The loss of real and generated rows, with a gradient for the discriminator alone.
        generator_loss: The loss of the generator, with a gradient for the generator alone.
    """

    labeled_logits: Tensor
    discriminator_loss: Tensor
    generator_loss: Tensor


def discriminate(network: Network, labeled: Tensor, unlabeled: Tensor, generated: Tensor) -> DiscriminatorOutput:
    """Apply a discriminator to labeled, unlabeled and generated rows.

    Batch normalization sees all rows as one population. A second pass has detached weights and copies of the running
    statistics, so that the generator's loss does not change the discriminator.
    """
    inputs = torch.cat([labeled, unlabeled, generated.detach()])
    sizes = [len(labeled), len(unlabeled), len(generated)]
    labeled_logits, real_logits, fake_logits = network(inputs).float().split(sizes)
    frozen_state = {name: value.detach() for name, value in network.encoder.named_parameters()}
    frozen_state |= {name: value.clone() for name, value in network.encoder.named_buffers()}
    normal = (torch.cat([unlabeled, generated]) - network.mean) / network.deviation
    encoded = functional_call(network.encoder, frozen_state, (normal,)).float().flatten(1)
    real_mean, generated_mean = (part.mean(dim=0) for part in encoded.split(sizes[1:]))
    return DiscriminatorOutput(
        labeled_logits, realness_loss(real_logits, fake_logits), (real_mean - generated_mean).square().sum()
    )


def realness_loss(real: Tensor, fake: Tensor) -> Tensor:
    """Return the cross-entropy of real versus generated rows, where the logit of "generated" is 0."""
    odds = torch.logsumexp(real, dim=1)
    return F.softplus(-odds).mean() + F.softplus(torch.logsumexp(fake, dim=1)).mean()


def contradiction_mask(first_logits: Tensor, second_logits: Tensor, labels: Tensor) -> Tensor:
    """Mark the rows for which two networks predict different classes and neither is the label."""
    return (
        disagreement_mask(first_logits, second_logits)
        & (first_logits.argmax(dim=1) != labels)
        & (second_logits.argmax(dim=1) != labels)
    )


def select_trusted_rows(release: Release, counts: NDArray[np.floating], remove_fraction: float) -> NDArray[np.bool_]:
    """Return a mask of all rows but the given share of labeled rows with the highest positive counts."""
    labeled_ids = np.arange(release.n_rows) if release.row_mask is None else np.flatnonzero(release.row_mask)
    n_removable = int(remove_fraction * labeled_ids.size)
    removable_ids = labeled_ids[np.argsort(-counts[labeled_ids], kind="stable")][:n_removable]
    trusted = np.ones(release.n_rows, bool)
    trusted[removable_ids[counts[removable_ids] > 0]] = False
    return trusted


class _GAN(nn.Module):
    """The networks that are trained together, with the counts of contradicted labels as buffers for checkpoints."""

    epoch_marks: Tensor
    counts: Tensor

    def __init__(self, discriminators: list[Network], generator: "_Generator", n_labeled: int) -> None:
        super().__init__()
        self.discriminators, self.generator = nn.ModuleList(discriminators), generator
        self.register_buffer("epoch_marks", torch.zeros(n_labeled))
        self.register_buffer("counts", torch.zeros(n_labeled))

    def end_epoch(self, decay: float) -> None:
        """Add the contradicted labels of an epoch, each once, to the decayed counts."""
        self.counts.mul_(decay).add_(self.epoch_marks > 0)
        self.epoch_marks.zero_()


class _Generator(nn.Module):
    """Three fully connected layers, with outputs in the range of the features."""

    low: Tensor
    high: Tensor

    def __init__(self, features: Features, latent_dim: int) -> None:
        super().__init__()
        low, high = _input_range(features)
        self.register_buffer("low", low)
        self.register_buffer("high", high)
        self.shape = features.shape
        layers: list[nn.Module] = []
        for in_features in (latent_dim, _HIDDEN_WIDTH):
            layers += [nn.Linear(in_features, _HIDDEN_WIDTH, bias=False), nn.BatchNorm1d(_HIDDEN_WIDTH), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(_HIDDEN_WIDTH, int(torch.Size(features.shape).numel())))

    def forward(self, latent: Tensor) -> Tensor:
        """Return a generated row for each latent vector."""
        outputs = self.layers(latent).float().sigmoid().reshape(len(latent), *self.shape)
        if len(self.shape) == 3:
            outputs = outputs.contiguous(memory_format=torch.channels_last)
        return self.low + (self.high - self.low) * outputs


def _input_range(features: Features) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest input of each column, or of each channel over all pixels."""
    dims = (0, 2, 3) if len(features.shape) == 3 else (0,)
    parts = (features.batch(row_ids) for row_ids in torch.split(torch.arange(len(features)), _RANGE_ROWS))
    part_ranges = [(part.amin(dims, keepdim=True)[0], part.amax(dims, keepdim=True)[0]) for part in parts]
    return torch.stack([low for low, _ in part_ranges]).amin(0), torch.stack([high for _, high in part_ranges]).amax(0)


def _require_network(network: nn.Module) -> Network:
    if not isinstance(network, Network):
        raise InputError("The generator matches encodings: choose a backbone of this library, or make a Network.")
    return network
