"""Co-teaching (Han et al. 2018) and co-teaching+ (Yu et al. 2019): two networks pick rows for each other."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.data.base import Features
from labeldp.learn.backbones import Average
from labeldp.learn.base import Learner, active_rows, hard_labels
from labeldp.learn.model import Model
from labeldp.releases.base import Release


@dataclass(frozen=True)
class CoTeaching(Learner):
    """Each network learns, of every batch, the rows whose loss is small for the other one.

    The share that is left out grows over the first `ramp` of all epochs to the noise rate, which a release of
    labels knows exactly. With `plus`, rows are chosen among those on which the two networks disagree, so that they
    stay different.
    """

    noise_rate: float | None = None
    ramp: float = 0.3
    plus: bool = False

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train both networks; the model averages them."""
        features = self._place(features, release)
        device, classes = features.device, len(release.space)
        rate = noise_rate_of(release) if self.noise_rate is None else self.noise_rate
        pair = nn.ModuleList([self._network(features, classes, start, offset) for offset in (0, 1)])
        rows, labels = active_rows(release, device), hard_labels(release, device)
        forget = torch.zeros((), device=device)  # a number of Python's would be compiled into the loss
        apart = False

        def begin_epoch(epoch: int) -> None:
            nonlocal apart
            share = rate * min(1.0, epoch / max(1, self.ramp * self.training.epochs))
            forget.fill_(share)
            apart = self.plus and share > 0

        def loss(positions: Tensor) -> Tensor:
            chosen = rows[positions]
            inputs, wanted = features.weak(features.batch(chosen)), labels[chosen]
            first, second = (network(inputs).float() for network in pair)
            among = disagreement(first, second) if apart else torch.ones_like(wanted, dtype=torch.bool)
            losses = [F.cross_entropy(logits, wanted, reduction="none") for logits in (first, second)]
            picked = [small_loss(each.detach(), forget, among) for each in losses]
            return (losses[0] * picked[1]).sum() / picked[1].sum() + (losses[1] * picked[0]).sum() / picked[0].sum()

        trained = self._train(pair, release, len(rows), loss, start, begin_epoch=begin_epoch)
        return Model.trained_on(Average(list(trained.children())), release, start)


def small_loss(losses: Tensor, forget: float | Tensor, among: Tensor) -> Tensor:
    """Mark the rows of smallest loss: all but a share `forget`, of those in `among` (at least one row)."""
    count = (among.sum() * (1 - forget)).ceil().clamp_min(1)
    among = among | ~among.any()  # asking whether there is one would make a GPU wait at every step
    place = torch.where(among, losses, torch.inf).argsort().argsort()
    return ((place < count) & among).float()


def disagreement(first: Tensor, second: Tensor) -> Tensor:
    """Mark the rows for which two networks predict different classes."""
    return first.argmax(dim=1) != second.argmax(dim=1)


def noise_rate_of(release: Release) -> float:
    """Return the share of released labels that are wrong, averaged over classes: a release of labels knows it."""
    try:
        return float(1 - release.noise_matrix().diagonal().mean())
    except InputError:
        raise InputError(f"{release.mechanism} does not state its noise rate: give noise_rate.") from None
