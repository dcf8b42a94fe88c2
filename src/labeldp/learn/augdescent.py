"""Aug-Descent (Nishi et al. 2021) on DivideMix (Li et al. 2020): two networks sort the labels for each other.

Analysis (losses, guesses) looks at weakly varied rows, descent learns strongly varied ones. Each epoch, each row's
label gets a chance of being right, from the other network; a label that is likely right is refined, any other is
replaced by what both networks guess; and all rows are mixed (MixMatch).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.backbones import Average
from labeldp.learn.base import Learner, active_rows, evidence_of, hard_labels, soft_cross_entropy
from labeldp.learn.bayes import posterior
from labeldp.learn.coteaching import noise_rate_of
from labeldp.learn.model import Model
from labeldp.learn.supervised import beta_share
from labeldp.releases.base import Release
from labeldp.releases.derived import Relabelled
from labeldp.releases.responses import Responses


@dataclass(frozen=True)
class AugDescent(Learner):
    """Two networks; `warmup` is the share of epochs in which they learn the labels as they are."""

    warmup: float = 0.1
    threshold: float = 0.5  # how likely right a label must be, to be refined rather than replaced
    temperature: float = 0.5
    views: int = 2
    mixing: float = 4.0
    guess_weight: float = 25.0
    guess_ramp: float = 0.2  # the share of epochs over which guesses gain their weight
    balance: float = 1.0  # weight of the penalty on predicting classes more or less often than they are

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train both networks; the model averages them."""
        features = self._place(features, release)
        device, classes = features.device, len(release.space)
        pair = nn.ModuleList([self._network(features, classes, start, offset) for offset in (0, 1)])
        rows, labels = active_rows(release, device), hard_labels(release, device)
        right = _Rightness(features, release, rows, labels)
        chances = [torch.ones(len(rows), device=device)] * 2
        warm, warming = max(1, round(self.warmup * self.training.epochs)), True
        ramp = torch.zeros((), device=device)  # a number of Python's would be compiled into the loss, anew each epoch

        def begin_epoch(epoch: int) -> None:
            nonlocal warming, chances
            warming = epoch < warm
            ramp.fill_(min(1.0, (epoch - warm + 1) / max(1, self.guess_ramp * self.training.epochs)))
            if not warming:
                chances = [right(network) for network in (pair[1], pair[0])]  # each hears from the other

        def loss(positions: Tensor) -> Tensor:
            chosen = rows[positions]
            inputs = features.batch(chosen)
            wanted = F.one_hot(labels[chosen], classes).float()
            if warming:
                varied = features.strong(inputs)
                return soft_cross_entropy(pair[0](varied), wanted) + soft_cross_entropy(pair[1](varied), wanted)
            looks = [features.weak(inputs) for _ in range(self.views)]
            with torch.no_grad():
                seen = [torch.stack([torch.softmax(net(x).float(), 1) for x in looks]).mean(0) for net in pair]
            total = torch.zeros((), device=device)
            for network, own, chance in zip(pair, seen, chances, strict=True):
                target, kept = self._targets(wanted, own, (seen[0] + seen[1]) / 2, chance[positions], right.frequent)
                total = total + self._descend(network, features.strong(inputs), target, kept, ramp, right.frequent)
            return total

        trained = self._train(pair, release, len(rows), loss, start, begin_epoch=begin_epoch)
        return Model.trained_on(Average(list(trained.children())), release, start)

    def _targets(
        self, wanted: Tensor, own: Tensor, both: Tensor, chance: Tensor, frequent: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Refine labels that are likely right, replace the others, and sharpen; also say which were kept.

        Sharp guesses lean to frequent classes, and what learns them leans further: they are brought back to how
        frequent classes are.
        """
        kept = chance >= self.threshold
        refined = chance[:, None] * wanted + (1 - chance[:, None]) * own
        sharp = sharpen(torch.where(kept[:, None], refined, both), self.temperature)
        guessed = (sharp * ~kept[:, None]).sum(0) / (~kept).sum().clamp_min(1)
        even = sharp * (frequent / guessed.clamp_min(1e-6))
        return torch.where(kept[:, None], sharp, even / even.sum(dim=1, keepdim=True)), kept

    def _descend(
        self, network: nn.Module, inputs: Tensor, target: Tensor, kept: Tensor, ramp: Tensor, frequent: Tensor
    ) -> Tensor:
        """MixMatch: cross-entropy where labels were kept, squared error where they are guesses, and balance.

        Every row weighs the same, so that few guesses do not outweigh many labels.
        """
        share = beta_share(self.mixing, inputs.device)
        share = torch.maximum(share, 1 - share)
        other = torch.rand(len(inputs), device=inputs.device).argsort()  # torch fails to compile rows by randperm
        logits = network(share * inputs + (1 - share) * inputs[other]).float()
        mixed = share * target + (1 - share) * target[other]
        log_chance = F.log_softmax(logits, dim=1)
        labelled = (-(mixed * log_chance).sum(1) * kept).sum() / kept.sum().clamp_min(1)
        squared = ((log_chance.exp() - mixed) ** 2).mean(1)
        guessed = (squared * ~kept).sum() / len(kept)
        mean = log_chance.exp().mean(0)
        uneven = (frequent * (frequent / mean.clamp_min(1e-9)).log()).sum()
        return labelled + self.guess_weight * ramp * guessed + self.balance * uneven


class _Rightness:
    """The chance that each released label is right, as one network sees it.

    Where the channel is symmetric, the share of right labels is known exactly, and a mixture of two Gaussians with
    that share sorts the losses. It takes whatever is hard to learn for wrong, a rare class above all, and what is
    guessed in its place confirms that. But the share of right ones among the labels of each class is known, too, by the
    channel and by how often they were released: only the most doubtful so many are doubted. Labels that were worked out
    from a release have a share that nobody knows: the mixture finds it. Elsewhere the evidence and the network give the
    chance by Bayes' rule.
    """

    def __init__(self, features: Features, release: Release, rows: Tensor, labels: Tensor) -> None:
        worked_out = isinstance(release, Relabelled)
        if release.kind != "likelihood" and not worked_out:
            raise InputError(
                f"{release.mechanism} gives a prior, not noisy labels: relabel rows by it and use FixMatch."
            )
        self._features, self._rows, self._labels = features, rows, labels
        self._evidence = evidence_of(release, features.device)
        symmetric = isinstance(release, Responses) and release.candidates is None
        self._by_loss = symmetric or worked_out
        self._right_share = 1 - noise_rate_of(release) if symmetric else None
        classes = len(release.space)
        self.frequent, self._right_of = torch.full((classes,), 1 / classes, device=features.device), list[float]()
        if symmetric:
            self.frequent, self._right_of = shares_of_classes(release.noise_matrix(), labels[rows])
        elif worked_out:  # they are mostly right
            self.frequent, _ = shares_of_classes(np.eye(classes), labels[rows])

    def __call__(self, network: nn.Module) -> Tensor:
        parts = []
        for chosen in torch.split(self._rows, 2048):
            logits, said = network(self._features.batch(chosen)).float(), self._labels[chosen]
            if self._by_loss:
                parts.append(F.cross_entropy(logits, said, reduction="none"))
            else:
                parts.append(posterior(logits, self._evidence(chosen)).gather(1, said[:, None])[:, 0])
        values = torch.cat(parts)
        if not self._by_loss:
            return values
        odds, said = small_component(values, self._right_share), self._labels[self._rows]
        for code, share in enumerate(self._right_of):
            if (said == code).any():
                odds[said == code] = surest_share(odds[said == code], share)
        return torch.sigmoid(odds)


def small_component(losses: Tensor, share: float | None, rounds: int = 30) -> Tensor:
    """Return the log-odds for each loss of belonging to the lower of two Gaussians.

    Its `share` of the rows is known, or None: then it is found with the rest.
    """
    x = (losses - losses.min()) / (losses.max() - losses.min()).clamp_min(1e-9)
    begin = 0.5 if share is None else share
    low, high = x.quantile(begin / 2) if len(x) < 1 << 24 else x.min(), x.mean()
    mean = torch.stack([low, torch.maximum(high, low + 1e-3)])
    variance = x.var().clamp_min(1e-6).repeat(2)
    log_share = torch.tensor([begin, 1 - begin], device=x.device).log()
    for _ in range(rounds):
        log_density = log_share - 0.5 * variance.log() - (x[:, None] - mean) ** 2 / (2 * variance)
        belongs = torch.softmax(log_density, dim=1)
        weight = belongs.sum(0).clamp_min(1e-9)
        mean = (belongs * x[:, None]).sum(0) / weight
        variance = ((belongs * (x[:, None] - mean) ** 2).sum(0) / weight).clamp_min(1e-4)
        if share is None:
            log_share = (weight / weight.sum()).log()
    lower = int(mean.argmin())
    return log_density[:, lower] - log_density[:, 1 - lower]


def surest_share(odds: Tensor, share: float) -> Tensor:
    """Move all log-odds by one step, such that this share of them is for and the others are against."""
    return odds - odds.sort().values[round((1 - share) * (len(odds) - 1))]


def shares_of_classes(channel: NDArray[np.float64], released: Tensor) -> tuple[Tensor, list[float]]:
    """Return how frequent each class is, and how often a label that was released as it is right.

    The channel P(released | true) turns the true shares of classes into the released ones, so it tells them back, but
    for noise: no class is taken to be rarer than a tenth of its part.
    """
    said = np.bincount(released.cpu().numpy(), minlength=len(channel)) / max(1, len(released))
    true = np.maximum(np.linalg.solve(channel, said), 0.1 / len(channel))
    true /= true.sum()
    right = channel.diagonal() * true / np.maximum(said, 1e-12)
    return torch.tensor(true, dtype=torch.float32, device=released.device), np.clip(right, 0.01, 0.999).tolist()


def sharpen(chances: Tensor, temperature: float) -> Tensor:
    """Raise probabilities to 1 / temperature and normalise."""
    powers = chances.clamp_min(1e-9) ** (1 / temperature)
    return powers / powers.sum(dim=1, keepdim=True)
