"""SoftMatch (Chen et al. 2023): few labels, many guesses, each guess weighing as much as it is sure.

Guesses come from a slow copy of the network (Tarvainen and Valpola 2017), which is steadier than the network itself,
and are brought to the classes' shares (Berthelot et al. 2020), so that no class grows at another's cost.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.features.base import Features
from labeldp.learn.base import Learner, active_rows, follow, hard_labels
from labeldp.learn.model import Model
from labeldp.releases.base import Release


@dataclass(frozen=True)
class SoftMatch(Learner):
    """Learn marked labels from weakly varied rows, and the slow copy's guesses from strongly varied ones.

    Each step takes one labelled row for `ratio` unlabelled ones. It needs a `start` whose head knows the classes a
    little, such as a model trained on the marked rows alone: it believes its first guesses. With `doubt`, a label that
    the slow copy contradicts is left out until it no longer does. The model is the slow copy.
    """

    weight: float = 1.0
    ratio: int = 7
    inertia: float = 0.999  # of the slow copy, a step
    doubt: bool = True

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on all rows, with the labels of those that the release speaks of."""
        features = self._place(features, release)
        device, classes = features.device, len(release.space)
        network = self._network(features, classes, start)
        slow = copy.deepcopy(network).requires_grad_(False)
        labelled, labels = active_rows(release, device), hard_labels(release, device)
        judge = Judge(torch.bincount(labels[labelled], minlength=classes)).to(device)
        believed = torch.ones(release.rows, device=device)

        def begin_epoch(epoch: int) -> None:
            if self.doubt and epoch:
                for rows in torch.split(labelled, 2048):
                    believed[rows] = (slow(features.batch(rows)).argmax(dim=1) == labels[rows]).float()

        def begin_step(done: float) -> None:
            follow(slow, network, self.inertia)

        def loss(unlabelled: Tensor) -> Tensor:
            known = labelled[torch.randint(len(labelled), (max(1, len(unlabelled) // self.ratio),), device=device)]
            clean = features.batch(unlabelled)
            with torch.no_grad():
                guess, sure = judge(torch.softmax(slow(features.weak(clean)).float(), dim=1))
            views = [features.weak(features.batch(known)), features.strong(clean)]
            known_logits, strong = network(torch.cat(views)).float().split([len(view) for view in views])
            right = (F.cross_entropy(known_logits, labels[known], reduction="none") * believed[known]).mean()
            return right + self.weight * (F.cross_entropy(strong, guess, reduction="none") * sure).mean()

        everything = nn.ModuleList([slow, network, judge])
        hooks = {"begin_epoch": begin_epoch, "begin_step": begin_step}
        trained = self._train(everything, release, release.rows, loss, **hooks)
        return Model.trained_on(next(trained.children()), release, start)


class Judge(nn.Module):
    """Brings probabilities to the classes' shares, and says how much each guess weighs.

    A guess weighs 1 if it is surer than the average one, and less by a bell curve, half as wide as sureness spreads,
    the less sure it is. Averages are running ones, kept as buffers so that they go into checkpoints.
    """

    shares: Tensor
    usual: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, counts: Tensor, inertia: float = 0.99) -> None:
        super().__init__()
        classes, self._inertia = len(counts), inertia
        shares = (counts + 1) / (counts + 1).sum()  # a class without a label is rare, not impossible
        self.register_buffer("shares", shares)
        self.register_buffer("usual", shares.clone())
        self.register_buffer("centre", torch.full((), 1 / classes))
        self.register_buffer("spread", torch.ones(()))

    @torch.no_grad()
    def forward(self, chances: Tensor) -> tuple[Tensor, Tensor]:
        """Return the likeliest class of each row and its weight."""
        self._move(self.usual, chances.mean(dim=0))
        aligned = chances * self.shares / self.usual.clamp_min(1e-6)
        chance, guess = (aligned / aligned.sum(dim=1, keepdim=True)).max(dim=1)
        self._move(self.centre, chance.mean())
        self._move(self.spread, chance.var())
        below = (self.centre - chance).clamp_min(0)
        return guess, torch.exp(-2 * below.square() / self.spread.clamp_min(1e-6))

    def _move(self, average: Tensor, value: Tensor) -> None:
        if self.training:
            average.lerp_(value, 1 - self._inertia)
