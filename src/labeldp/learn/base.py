"""What learners share: a network to start from, and a release as tensors on the device."""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.data.base import Features, choose_device
from labeldp.data.images import Images
from labeldp.learn.backbones import Network, NumberHead, build
from labeldp.learn.encoded import members
from labeldp.learn.loop import train
from labeldp.learn.model import Model
from labeldp.learn.training import Training
from labeldp.releases.base import Release

Backbone = str | Callable[[tuple[int, ...], int], nn.Module]

_ON_DEVICE = 1 << 28  # numbers of evidence that are kept on the device at once; beyond, they come batch by batch


@dataclass(frozen=True)
class Learner(ABC):
    """Turns features and a release into a model. It sees no label, so everything it does is free of charge.

    `backbone` is a name, or a function of (shape, classes) that makes a network: `partial(build, "cnn", width=16)`, or
    any module of the user's.
    """

    backbone: Backbone = "auto"
    training: Training = field(default_factory=Training)

    @abstractmethod
    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train, from `start` where it is given: its encoder, and its head too if that has as many classes."""

    def together(self, features: Features, release: Release, starts: Sequence[Model | None]) -> list[Model]:
        """Train a network from each start, with a seed of its own."""
        apart = [self.with_training(seed=self.training.seed + place) for place in range(len(starts))]
        return [each.fit(features, release, start) for each, start in zip(apart, starts, strict=True)]

    def with_training(self, **changes: Any) -> "Learner":
        """Return the same learner with other settings of its training."""
        return replace(self, training=replace(self.training, **changes))

    def named(self, what: str) -> Self:
        """Return the same learner with a bar of that name, if its training has one."""
        return replace(self, training=self.training.named(what))

    def _place(self, features: Features, release: Release) -> Features:
        """Check that features and release belong together and move the features to the device."""
        if len(features) != release.rows:
            raise InputError(f"There are {len(features)} rows of features and {release.rows} in the release.")
        return place(features, self.training)

    def _network(self, features: Features, classes: int, start: Model | None, offset: int = 0) -> nn.Module:
        """Make a network; `offset` gives a second one other weights."""
        torch.manual_seed(self.training.seed + offset)
        if start is not None:
            return start_network(start, classes, features)
        return make_network(self.backbone, features, classes)

    def _train(
        self,
        network: nn.Module,
        release: Release,
        rows: int,
        loss: Callable[[Tensor], Tensor],
        *starts: Model | None,
        **hooks: Any,
    ) -> nn.Module:
        """Train, or go on; what began from a start that rests on other uses of labels is another training."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("backbone", "training")}
        before = [use.entry for start in starts if start is not None for use in start.lineage]
        identity = f"{type(self).__name__} {own} on {_mark(release)} after {before}"
        return train(network, rows, loss, self.training, identity=identity, **hooks)


def _mark(release: Release) -> str:
    """Tell a release from others, also from those that were made of it."""
    digest = hashlib.sha256(f"{release.mechanism} {release.entry} {getattr(release, 'confidence', '')}".encode())
    for array in (release.active, getattr(release, "codes", None), getattr(release, "probabilities", None)):
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def beside(checkpoint: Path | None) -> Path | None:
    """Return where the first of two trainings has its checkpoint: a folder has a place for both."""
    if checkpoint is None or checkpoint.is_dir():
        return checkpoint
    return checkpoint.with_name(f"{checkpoint.stem}-first{checkpoint.suffix}")


def place(features: Features, training: Training) -> Features:
    """Move features to the device of a training."""
    features = features.to(choose_device(training.device))
    if training.compile and len(features):
        features.weak(features.batch(torch.zeros(1, dtype=torch.long, device=features.device)))  # measures its columns
        for value in vars(features).values():
            if isinstance(value, Tensor):  # a CUDA graph would copy it at every step, if it were not known to stay
                torch._dynamo.mark_static_address(value, guard=False)
    return features


def make_network(backbone: Backbone, features: Features, classes: int) -> nn.Module:
    """Build a network that normalises its input by the features' moments."""
    if backbone == "auto":
        backbone = {1: "mlp", 2: "mf", 3: "resnet18"}[len(features.shape)]
    network = (
        build(backbone, features.shape, classes) if isinstance(backbone, str) else backbone(features.shape, classes)
    )
    if isinstance(network, Network):
        network.normalise_by(*map(torch.from_numpy, features.moments()))
    return on_device(network, features)


def start_network(start: Model, classes: int, features: Features) -> nn.Module:
    """Copy a model's network, with a new head unless it already scores as many classes."""
    network = copy.deepcopy(members(start)[0].network)
    if isinstance(network, Network) and network.head.out_features != classes:
        network = with_new_head(network, classes)
    return on_device(network.requires_grad_(True), features)


def with_new_head(network: Network, classes: int, numbers: dict[str, Any] | None = None) -> Network:
    """Put a new head on a network: one of classes or, with its settings, a `NumberHead`."""
    network.head = NumberHead(network.width, classes, **numbers) if numbers else nn.Linear(network.width, classes)
    network.recipe = network.recipe | {"classes": classes, "numbers": numbers}
    return network


def on_device(network: nn.Module, features: Features) -> nn.Module:
    """Move a network to its features, in the memory format that convolutions like, and say what their mirrors mean."""
    network = network.to(features.device)
    if isinstance(features, Images) and isinstance(network, Network):
        network.recipe = network.recipe | {"flip": features.flip}
    if len(features.shape) == 3:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def active_rows(release: Release, device: torch.device) -> Tensor:
    """Return the rows that a release speaks of."""
    everything = torch.arange(release.rows)
    rows = everything if release.active is None else everything[torch.from_numpy(release.active)]
    if not len(rows):
        raise InputError("The release speaks of no row: there is nothing to learn from.")
    return rows.to(device)


def hard_labels(release: Release, device: torch.device) -> Tensor:
    """Return the code of each row, -1 where there is none."""
    if release.space.step is not None:
        raise InputError(
            "This learner takes a label for a class, and these are numbers: use Bayes, "
            'Supervised(targets="posteriors"), or Regression for a regressor of scikit-learn.'
        )
    return torch.from_numpy(release.labels().astype("int64")).to(device)


def evidence_of(release: Release, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return a function from rows to their log-evidence on the device."""
    if release.rows * len(release.space) <= _ON_DEVICE:
        table = torch.from_numpy(release.log_evidence()).to(device)
        return lambda rows: table[rows]
    return lambda rows: torch.from_numpy(release.log_evidence(rows.cpu().numpy())).to(device)


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy with a distribution (or any weights) over classes."""
    return -(target * F.log_softmax(logits.float(), dim=1)).sum(dim=1).mean()


@torch.no_grad()
def follow(slow: nn.Module, network: nn.Module, inertia: float) -> None:
    """Move a slow copy towards a network by the share that inertia leaves."""
    torch._foreach_lerp_(list(slow.parameters()), list(network.parameters()), 1 - inertia)
