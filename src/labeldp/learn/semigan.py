"""A semi-supervised GAN (Salimans et al. 2016), PATE's student; and PATE++ (Zhang et al. 2021), which doubts labels.

A discriminator scores K classes; the class of generated rows has the logit 0, so that a row is real with odds
Z = sum of exp(logits). Labelled rows teach classes, all others teach what is real, generated rows what is not. The
generator learns to match the mean encoding of real rows. PATE++ has two discriminators, which pick rows for each other.
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
from labeldp.learn.backbones import Average, Network
from labeldp.learn.base import Learner, active_rows, beside, hard_labels
from labeldp.learn.coteaching import disagreement, small_loss
from labeldp.learn.model import Model
from labeldp.releases.base import Release

_WIDTH = 500  # of the generator's hidden layers
_RANGE_ROWS = 4096  # rows that are in memory at once when the range of the input is measured


@dataclass(frozen=True)
class SemiGAN(Learner):
    """Learn the labels of some rows, and what all the others look like.

    With two `discriminators`, each learns, of every batch, the labelled rows whose loss is small for the other one;
    the share that is left out grows over `ramp` epochs to `noise_rate`, a guess at the share of wrong labels. With
    `plus`, rows are chosen among those on which the two disagree (PATE+). With `remove` above 0, all of this happens
    twice (PATE++): first to find that share of labels which both discriminators contradicted most often while
    they disagreed, an epoch counting `fade` times as much as the next one; then, from scratch, with these rows among
    the unlabelled ones.
    """

    discriminators: Literal[1, 2] = 1
    noise_rate: float = 0.2
    ramp: int = 15
    plus: bool = False
    remove: float = 0.0
    fade: float = 0.9
    augment: Literal["none", "weak"] = "weak"
    codes: int = 100  # numbers that the generator makes a row of

    def __post_init__(self) -> None:
        if self.discriminators not in (1, 2) or (self.discriminators == 1 and (self.plus or self.remove)):
            raise InputError("discriminators is 1 or 2; plus and remove need 2, which can disagree.")
        if not (0 <= self.noise_rate < 1 and 0 <= self.remove < 1 and 0 < self.fade <= 1):
            raise InputError("noise_rate and remove are shares from 0 to below 1, and fade is above 0 and at most 1.")

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train, twice where labels are to be removed; the model averages its discriminators."""
        if not self.remove:
            return self.fit_and_count(features, release, start)[0]
        once = replace(self, remove=0.0)
        first = replace(once, training=replace(self.training, checkpoint=beside(self.training.checkpoint)))
        _, counts = first.fit_and_count(features, release, start)
        return once.fit(features, release.keep(trusted(release, counts, self.remove)), start)

    def fit_and_count(
        self, features: Features, release: Release, start: Model | None = None
    ) -> tuple[Model, NDArray[np.float32]]:
        """Train once, and also tell, for every row, how often both discriminators contradicted its label."""
        features = self._place(features, release)
        device, classes = features.device, len(release.space)
        labelled, labels = active_rows(release, device), hard_labels(release, device)
        others = torch.arange(len(features), device=device)[labels < 0]
        unlabelled = others if len(others) else labelled  # where all rows have labels, these are real rows too
        networks = [_encoding(self._network(features, classes, start, i)) for i in range(self.discriminators)]
        game = _Game(networks, _Generator(features, self.codes).to(device), len(labelled)).to(device)
        size = max(len(labelled), len(unlabelled))
        pairing = torch.arange(size, device=device)
        forget = torch.zeros((), device=device)  # a number of Python's would be compiled into the loss, anew each epoch
        picky = torch.zeros((), dtype=torch.bool, device=device)
        vary = features.weak if self.augment == "weak" else (lambda batch: batch)

        def begin_epoch(epoch: int) -> None:
            # The shorter list is repeated, and meets other rows in every epoch.
            pairing.copy_(torch.randperm(size, device=device))
            forget.fill_(self.noise_rate * min(1.0, epoch / max(1, self.ramp)))
            picky.fill_(self.plus and epoch > 0)  # two networks that know nothing disagree on nearly all rows
            if epoch:
                game.fold(self.fade)

        def loss(positions: Tensor) -> Tensor:
            place = pairing[positions] % len(labelled)
            known, wanted = labelled[place], labels[labelled[place]]
            other = unlabelled[positions % len(unlabelled)]
            generated = game.generator(torch.rand(len(positions), self.codes, device=device))
            real = vary(features.batch(known)), vary(features.batch(other))
            parts = [judge(network, *real, generated) for network in networks]
            losses = [F.cross_entropy(part.known, wanted, reduction="none") for part in parts]
            total = sum((part.realness + part.matching / len(parts) for part in parts), forget.new_zeros(()))
            if len(parts) == 1:
                return total + losses[0].mean()
            first, second = (part.known.detach() for part in parts)
            among = disagreement(first, second)
            game.marks.index_add_(0, place, contradicted(first, second, wanted).float())
            picked = [small_loss(each.detach(), forget, among | ~picky) for each in losses]
            for own, chosen in zip(losses, reversed(picked), strict=True):
                total = total + (own * chosen).sum() / chosen.sum()
            return total

        trained = cast(_Game, self._train(game, release, size, loss, start, begin_epoch=begin_epoch))
        trained.fold(self.fade)
        counts = np.zeros(release.rows, np.float32)
        counts[labelled.cpu().numpy()] = trained.counts.cpu().numpy()
        judges = list(trained.discriminators)
        network = judges[0] if len(judges) == 1 else Average(judges)
        return Model.trained_on(network, release, start), counts


@dataclass(frozen=True)
class Judgement:
    """What one discriminator says of a batch: scores of labelled rows, and the two losses that need no label."""

    known: Tensor
    realness: Tensor  # teaches the discriminator alone
    matching: Tensor  # teaches the generator alone


def judge(network: Network, known: Tensor, unlabelled: Tensor, generated: Tensor) -> Judgement:
    """Let a discriminator judge labelled, unlabelled and generated rows.

    All rows are normalised as one population, in training as later in use. The second pass repeats the first one with
    weights that stand still and statistics of its own, so that the generator is taught without a trace in the
    discriminator.
    """
    rows = torch.cat([known, unlabelled, generated.detach()])
    sizes = [len(known), len(unlabelled), len(generated)]
    labelled, real, fake = network(rows).float().split(sizes)
    still = {name: value.detach() for name, value in network.encoder.named_parameters()}
    still |= {name: value.clone() for name, value in network.encoder.named_buffers()}
    normal = (torch.cat([unlabelled, generated]) - network.mean) / network.deviation
    encoded = functional_call(network.encoder, still, (normal,)).float().flatten(1)
    wanted, found = (part.mean(dim=0) for part in encoded.split(sizes[1:]))
    return Judgement(labelled, realness_loss(real, fake), (wanted - found).square().sum())


def realness_loss(real: Tensor, fake: Tensor) -> Tensor:
    """Return the loss of calling real rows generated, and generated rows real, with the logit 0 for "generated"."""
    odds = torch.logsumexp(real, dim=1)
    return F.softplus(-odds).mean() + F.softplus(torch.logsumexp(fake, dim=1)).mean()


def contradicted(first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """Mark the rows for which two networks predict two classes, neither of which is the label."""
    return disagreement(first, second) & (first.argmax(dim=1) != labels) & (second.argmax(dim=1) != labels)


def trusted(release: Release, counts: NDArray[np.floating], remove: float) -> NDArray[np.bool_]:
    """Return the rows that keep their label: all but the share with the highest counts; none without a count goes."""
    labelled = np.arange(release.rows) if release.active is None else np.flatnonzero(release.active)
    order = labelled[np.argsort(-counts[labelled], kind="stable")][: int(remove * labelled.size)]
    kept = np.ones(release.rows, bool)
    kept[order[counts[order] > 0]] = False
    return kept


class _Game(nn.Module):
    """All that is trained together, and how often each label was contradicted: so, checkpoints hold it all."""

    marks: Tensor
    counts: Tensor

    def __init__(self, discriminators: list[Network], generator: "_Generator", labelled: int) -> None:
        super().__init__()
        self.discriminators, self.generator = nn.ModuleList(discriminators), generator
        self.register_buffer("marks", torch.zeros(labelled))
        self.register_buffer("counts", torch.zeros(labelled))

    def fold(self, fade: float) -> None:
        """End an epoch: a label counts once in it, and what was counted before counts less."""
        self.counts.mul_(fade).add_(self.marks > 0)
        self.marks.zero_()


class _Generator(nn.Module):
    """Three fully connected layers, whose rows lie where the features' lie."""

    low: Tensor
    high: Tensor

    def __init__(self, features: Features, codes: int) -> None:
        super().__init__()
        low, high = _range(features)
        self.register_buffer("low", low)
        self.register_buffer("high", high)
        self.shape = features.shape
        layers: list[nn.Module] = []
        for inside in (codes, _WIDTH):
            layers += [nn.Linear(inside, _WIDTH, bias=False), nn.BatchNorm1d(_WIDTH), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(_WIDTH, int(torch.Size(features.shape).numel())))

    def forward(self, codes: Tensor) -> Tensor:
        """Make a row of each code."""
        rows = self.layers(codes).float().sigmoid().reshape(len(codes), *self.shape)
        if len(self.shape) == 3:
            rows = rows.contiguous(memory_format=torch.channels_last)
        return self.low + (self.high - self.low) * rows


def _range(features: Features) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest input of each column, or of each channel over all pixels."""
    dims = (0, 2, 3) if len(features.shape) == 3 else (0,)
    parts = (features.batch(rows) for rows in torch.split(torch.arange(len(features)), _RANGE_ROWS))
    ends = [(part.amin(dims, keepdim=True)[0], part.amax(dims, keepdim=True)[0]) for part in parts]
    return torch.stack([low for low, _ in ends]).amin(0), torch.stack([high for _, high in ends]).amax(0)


def _encoding(network: nn.Module) -> Network:
    if not isinstance(network, Network):
        raise InputError("The generator matches encodings: choose a backbone of this library, or make a Network.")
    return network
