"""CrossFit: two networks, each of which hears the evidence of one half of the rows, and one that learns from both.

A network that learns noisy labels comes to know them by heart, and then finds them confirmed. Here, what a network
believes of a row that it never heard of is the prior for that row's evidence, and the posterior is what the other
network learns. Such beliefs are honest, so the evidence itself can say how far to trust them.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.base import Learner, active_rows, beside, evidence_of, follow, soft_cross_entropy
from labeldp.learn.model import Model
from labeldp.learn.supervised import Supervised
from labeldp.releases.base import Release

_POWERS = torch.logspace(-1.5, 0.5, 41)  # from hardly trusted to trusted more than stated
_BLOCK = 2048  # rows that a network judges at once, outside of training

Evidence = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class CrossFit(Learner):
    """Train a pair on one half each; then, from the start, one network on the posteriors that the pair gives all rows.

    In strongly varied rows, each of the pair learns the posteriors of its half, with the other one's slow copy
    (Tarvainen and Valpola 2017) as prior. It should have a `start` that knows the classes a little and heard nothing of
    this release.
    """

    inertia: float = 0.998  # of the slow copies, a step

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on the rows that were released."""
        learnt = self.posteriors(features, release, [start])
        last = Supervised(self.backbone, self.training, targets="posteriors", augment="strong")
        return last.fit(features, learnt, start)

    def posteriors(self, features: Features, release: Release, starts: Sequence[Model | None]) -> Release:
        """Return what the pair says of the released rows; it begins from the first and the last of `starts`."""
        if release.kind == "prior":
            raise InputError(f"{release.mechanism} gives a prior, and CrossFit learns from likelihoods: use SoftMatch.")
        features = self._place(features, release)
        device, classes = features.device, len(release.space)
        rows, evidence = active_rows(release, device), evidence_of(release, device)
        if len(rows) < 2:
            raise InputError("CrossFit needs two rows or more, one for each network.")
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.training.seed))
        halves = rows[order.to(device)][: len(rows) // 2 * 2].view(2, -1)  # whose evidence each network hears
        first = replace(self, training=replace(self.training, checkpoint=beside(self.training.checkpoint)))
        pair = first._pair(features, release, halves, evidence, [*starts[:1], *starts[-1:]] or [None, None])
        posteriors = torch.zeros(release.rows, classes, device=device)
        for half, belief in zip(halves, reversed(pair), strict=True):
            posteriors[half] = posterior_of(belief, features, half, evidence)
        return release.believe(posteriors.cpu().numpy(), derived_from=[start for start in starts if start is not None])

    def _pair(
        self,
        features: Features,
        release: Release,
        halves: Tensor,
        evidence: Evidence,
        starts: Sequence[Model | None],
    ) -> list[nn.Module]:
        """Return the slow copies of two networks, the first of which heard the first half."""
        device, classes = features.device, len(release.space)
        pair = nn.ModuleList([self._network(features, classes, start, place) for place, start in enumerate(starts)])
        slow = copy.deepcopy(pair).requires_grad_(False)
        power = torch.ones(2, device=device)

        def begin_epoch(epoch: int) -> None:
            for ours, belief in enumerate((slow[1], slow[0])):
                power[ours] = trust(belief, features, halves[ours], evidence)

        def begin_step(done: float) -> None:
            follow(slow, pair, self.inertia)

        def loss(positions: Tensor) -> Tensor:
            total = torch.zeros((), device=device)
            for ours, (network, other) in enumerate(zip(pair, (slow[1], slow[0]), strict=True)):
                chosen = halves[ours, positions]
                clean = features.batch(chosen)
                with torch.no_grad():
                    belief = torch.log_softmax(other(features.weak(clean)).float(), dim=1)
                    posterior = torch.softmax(power[ours] * belief + evidence(chosen), dim=1)
                total = total + soft_cross_entropy(network(features.strong(clean)), posterior)
            return total

        everything, hooks = nn.ModuleList([slow, pair]), {"begin_epoch": begin_epoch, "begin_step": begin_step}
        trained = self._train(everything, release, halves.shape[1], loss, *starts, **hooks)
        return list(next(trained.children()).eval().children())


@torch.no_grad()
def posterior_of(network: nn.Module, features: Features, rows: Tensor, evidence: Evidence) -> Tensor:
    """Return the posteriors of rows whose evidence the network has not heard, its trust taken from that evidence."""
    power = trust(network, features, rows, evidence)
    blocks = [
        torch.softmax(power * torch.log_softmax(network(features.batch(part)).float(), dim=1) + evidence(part), dim=1)
        for part in torch.split(rows, _BLOCK)
    ]
    return torch.cat(blocks)


@torch.no_grad()
def trust(network: nn.Module, features: Features, rows: Tensor, evidence: Evidence) -> Tensor:
    """Return the power of a network's probabilities under which the evidence of some rows is likeliest.

    The network has not heard that evidence, so its probabilities cannot have been bent towards it.
    """
    powers = _POWERS.to(rows.device)
    total = torch.zeros_like(powers)
    for part in torch.split(rows, _BLOCK):
        logs = torch.log_softmax(network(features.batch(part)).float(), dim=1)
        tempered = torch.log_softmax(powers[:, None, None] * logs, dim=2)
        total += torch.logsumexp(tempered + evidence(part), dim=2).sum(dim=1)
    return powers[total.argmax()]
