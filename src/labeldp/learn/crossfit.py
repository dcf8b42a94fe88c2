"""CrossFit: two networks, each of which hears the evidence of one half of the rows.

A network that learns noisy labels comes to know them by heart, and then finds them confirmed. Here, what a network
believes of a row that it never heard of is the prior for that row's evidence, and the posterior is what the other
network learns. Such beliefs are honest, so the evidence itself can say how far to trust them.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labeldp.errors import InputError
from labeldp.features.base import Features
from labeldp.learn.backbones import Average
from labeldp.learn.base import Learner, active_rows, evidence_of, follow, soft_cross_entropy
from labeldp.learn.model import Model
from labeldp.releases.base import Release

_POWERS = torch.logspace(-1.5, 0.5, 41)  # from hardly trusted to trusted more than stated


@dataclass(frozen=True)
class CrossFit(Learner):
    """Learn posteriors of one half from strongly varied rows, with the other network's slow copy as prior.

    It should have a `start` that knows the classes a little and heard nothing of this release. The model averages the
    slow copies (Tarvainen and Valpola 2017) of both networks.
    """

    inertia: float = 0.998  # of the slow copies, a step

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train on the rows that were released."""
        if release.kind == "prior":
            raise InputError(f"{release.mechanism} gives a prior, and CrossFit learns from likelihoods: use SoftMatch.")
        features = self._place(features, release)
        device = features.device
        pair = nn.ModuleList([self._network(features, len(release.space), start, offset) for offset in (0, 1)])
        slow = copy.deepcopy(pair).requires_grad_(False)
        rows, evidence = active_rows(release, device), evidence_of(release, device)
        if len(rows) < 2:
            raise InputError("CrossFit needs two rows or more, one for each network.")
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(self.training.seed))
        halves = rows[order.to(device)][: len(rows) // 2 * 2].view(2, -1)  # whose evidence each network hears
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
        trained = self._train(everything, release, halves.shape[1], loss, **hooks)
        return Model.trained_on(Average(list(next(trained.children()).children())), release, start)


def trust(network: nn.Module, features: Features, rows: Tensor, evidence: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the power of a network's probabilities under which the evidence of some rows is likeliest.

    The network has not heard that evidence, so its probabilities cannot have been bent towards it.
    """
    powers = _POWERS.to(rows.device)
    total = torch.zeros_like(powers)
    for part in torch.split(rows, 2048):
        logs = torch.log_softmax(network(features.batch(part)).float(), dim=1)
        tempered = torch.log_softmax(powers[:, None, None] * logs, dim=2)
        total += torch.logsumexp(tempered + evidence(part), dim=2).sum(dim=1)
    return powers[total.argmax()]
