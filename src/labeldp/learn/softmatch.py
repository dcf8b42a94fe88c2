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
from labeldp.learn.base import Learner, active_rows, evidence_of, follow
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

    weight: float = 1.0
    ratio: int = 7
    inertia: float = 0.999  # of the slow copy, a step

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on all rows, with what the release says of some or all of them."""
        return self.together(features, release, [start])[0]

    def together(self, features: Features, release: Release, starts: Sequence[Model | None]) -> list[Model]:
        """Train a network from each start on the guesses of all of them.

        A network by itself believes its own mistakes; those of others that began elsewhere are others.
        """
        features = self._place(features, release)
        device, classes = features.device, len(release.space)
        networks = nn.ModuleList([self._network(features, classes, start, place) for place, start in enumerate(starts)])
        slow = copy.deepcopy(networks).requires_grad_(False)
        released, evidence, heard = active_rows(release, device), evidence_of(release, device), EvidenceLoss()
        judge = Judge(class_shares([evidence(rows) for rows in torch.split(released, 1 << 16)])).to(device)

        def begin_step(done: float) -> None:
            follow(slow, networks, self.inertia)

        def loss(rows: Tensor) -> Tensor:
            known = released[torch.randint(len(released), (max(1, len(rows) // self.ratio),), device=device)]
            clean = features.batch(rows)
            with torch.no_grad():
                weak = features.weak(clean)
                chances = [torch.softmax(each(weak).float(), dim=1) for each in slow]
                guess, sure = judge(torch.stack(chances).mean(dim=0), evidence(rows))
            total = torch.zeros((), device=device)
            for network in networks:
                views = [features.weak(features.batch(known)), features.strong(clean)]
                weak, strong = network(torch.cat(views)).float().split([len(view) for view in views])
                guessed = (F.cross_entropy(strong, guess, reduction="none") * sure).mean()
                total = total + heard(weak, evidence(known)) + self.weight * guessed
            return total

        everything = nn.ModuleList([slow, networks, judge])
        trained = self._train(everything, release, release.rows, loss, *starts, begin_step=begin_step)
        return [Model.trained_on(each, release, *starts) for each in next(trained.children()).children()]


class Judge(nn.Module):
    """Brings probabilities to the classes' shares, adds the evidence, and says how much each guess weighs.

    A guess weighs 1 if it is surer than the average one, and less by a bell curve, half as wide as sureness spreads,
    the less sure it is. Averages are running ones, kept as buffers so that they go into checkpoints.
    """

    shares: Tensor
    usual: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, shares: Tensor, inertia: float = 0.99) -> None:
        super().__init__()
        classes, self._inertia = len(shares), inertia
        self.register_buffer("shares", shares)
        self.register_buffer("usual", shares.clone())
        self.register_buffer("centre", torch.full((), 1 / classes))
        self.register_buffer("spread", torch.ones(()))

    @torch.no_grad()
    def forward(self, chances: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor]:
        """Return the likeliest class of each row and its weight."""
        self._move(self.usual, chances.mean(dim=0))
        aligned = (chances * self.shares / self.usual.clamp_min(1e-6)).clamp_min(1e-12).log()
        chance, guess = torch.softmax(aligned + evidence, dim=1).max(dim=1)
        self._move(self.centre, chance.mean())
        self._move(self.spread, chance.var())
        below = (self.centre - chance).clamp_min(0)
        return guess, torch.exp(-2 * below.square() / self.spread.clamp_min(1e-6))

    def _move(self, average: Tensor, value: Tensor) -> None:
        if self.training:
            average.lerp_(value, 1 - self._inertia)


def class_shares(evidence: Sequence[Tensor], rounds: int = 50) -> Tensor:
    """Return the shares of the classes among rows, from blocks of their evidence, by expectation maximisation.

    It begins from equal shares and one row of each class, so that no class is impossible; where evidence says little,
    it stays near them.
    """
    classes = evidence[0].shape[1]
    shares = torch.full((classes,), 1 / classes, device=evidence[0].device)
    for _ in range(rounds):
        counts = (
            torch.stack([torch.softmax(shares.log() + block, dim=1).sum(dim=0) for block in evidence]).sum(dim=0) + 1
        )
        shares = counts / counts.sum()
    return shares
