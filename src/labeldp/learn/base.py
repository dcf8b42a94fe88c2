"""The base class of learners of networks, and functions that they share."""

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
from labeldp.learn.backbones import Network, RegressionHead, build
from labeldp.learn.encoded import split_encoder
from labeldp.learn.loop import train_network
from labeldp.learn.model import Model
from labeldp.learn.training import Training
from labeldp.releases.base import Release

Backbone = str | Callable[[tuple[int, ...], int], nn.Module]

# Entries of evidence (rows times classes) that are stored on the device; more are copied batch by batch.
_MAX_DEVICE_ENTRIES = 1 << 28


@dataclass(frozen=True)
class Learner(ABC):
    """Trains a model on features and a release. It reads no true label, so training is post-processing without cost.

    Attributes:
        backbone: A name, or a function of (shape, n_classes) that makes a network: `partial(build, "cnn", width=16)`,
            or one that returns any module.
        training: The optimizer and its schedule.
    """

    backbone: Backbone = "auto"
    training: Training = field(default_factory=Training)

    @abstractmethod
    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train a network.

        Args:
            features: The rows.
            release: Evidence about these rows.
            start: A model from whose encoder the training starts, and from whose head if it has the same width.

        Returns:
            The model, with the provenance of the release and of `start`.
        """

    def fit_many(self, features: Features, release: Release, starts: Sequence[Model | None]) -> list[Model]:
        """Train one network from each start, each with its own seed."""
        learners = [self.with_training(seed=self.training.seed + index) for index in range(len(starts))]
        return [each.fit(features, release, start) for each, start in zip(learners, starts, strict=True)]

    def with_training(self, **changes: Any) -> "Learner":
        """Return the same learner with some fields of its `training` replaced."""
        return replace(self, training=replace(self.training, **changes))

    def with_progress_name(self, name: str) -> Self:
        """Return the same learner with a name for its progress bar, if it shows one."""
        return replace(self, training=self.training.with_progress_name(name))

    def _prepare_features(self, features: Features, release: Release) -> Features:
        """Check that features and release belong together and move the features to the device."""
        if len(features) != release.n_rows:
            raise InputError(f"There are {len(features)} rows of features and {release.n_rows} in the release.")
        return to_device(features, self.training)

    def _make_network(self, features: Features, n_classes: int, start: Model | None, offset: int = 0) -> nn.Module:
        """Make a network; `offset` is added to the seed of its weights."""
        torch.manual_seed(self.training.seed + offset)
        if start is not None:
            return warm_start_network(start, n_classes, features)
        return make_network(self.backbone, features, n_classes)

    def _train(
        self,
        network: nn.Module,
        release: Release,
        n_rows: int,
        loss: Callable[[Tensor], Tensor],
        *starts: Model | None,
        **hooks: Any,
    ) -> nn.Module:
        """Train a network, or resume a training with the same settings, release and starts."""
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("backbone", "training")}
        start_entries = [use.entry for start in starts if start is not None for use in start.lineage]
        identity = f"{type(self).__name__} {settings} on {_release_digest(release)} after {start_entries}"
        return train_network(network, n_rows, loss, self.training, identity=identity, **hooks)


def _release_digest(release: Release) -> str:
    """Return a digest of a release that differs from those of other releases and of releases derived from it."""
    digest = hashlib.sha256(f"{release.mechanism} {release.entry} {getattr(release, 'confidence', '')}".encode())
    for array in (release.row_mask, getattr(release, "codes", None), getattr(release, "probabilities", None)):
        digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def first_checkpoint(checkpoint: Path | None) -> Path | None:
    """Return the checkpoint of the first of two trainings; in a folder, each training has its own file."""
    if checkpoint is None or checkpoint.is_dir():
        return checkpoint
    return checkpoint.with_name(f"{checkpoint.stem}-first{checkpoint.suffix}")


def to_device(features: Features, training: Training) -> Features:
    """Move features to the device of a training."""
    features = features.to(choose_device(training.device))
    if training.compile and len(features):
        from torch._dynamo import mark_static_address

        features.weak(features.batch(torch.zeros(1, dtype=torch.long, device=features.device)))  # fills its caches
        for value in vars(features).values():
            if isinstance(value, Tensor):  # without a static address, a CUDA graph copies it in every step
                mark_static_address(value, guard=False)
    return features


def make_network(backbone: Backbone, features: Features, n_classes: int) -> nn.Module:
    """Build a network that normalizes its input by the features' moments."""
    if backbone == "auto":
        backbone = {1: "mlp", 2: "mf", 3: "resnet18"}[len(features.shape)]
    network = (
        build(backbone, features.shape, n_classes) if isinstance(backbone, str) else backbone(features.shape, n_classes)
    )
    if isinstance(network, Network):
        network.set_normalization(*map(torch.from_numpy, features.moments()))
    return prepare_network(network, features)


def warm_start_network(start: Model, n_classes: int, features: Features) -> nn.Module:
    """Copy a model's network, with a new head unless its head has `n_classes` outputs."""
    network = copy.deepcopy(split_encoder(start)[0].network)
    if isinstance(network, Network) and network.head.out_features != n_classes:
        network = replace_head(network, n_classes)
    return prepare_network(network.requires_grad_(True), features)


def replace_head(network: Network, n_classes: int, head_config: dict[str, Any] | None = None) -> Network:
    """Replace the head of a network by one for classes or, with `head_config`, by a `RegressionHead`."""
    network.head = (
        RegressionHead(network.width, n_classes, **head_config) if head_config else nn.Linear(network.width, n_classes)
    )
    network.config = network.config | {"classes": n_classes, "numbers": head_config}
    return network


def prepare_network(network: nn.Module, features: Features) -> nn.Module:
    """Move a network to the device of its features, and record in its `config` whether images may be flipped."""
    network = network.to(features.device)
    if isinstance(features, Images) and isinstance(network, Network):
        network.config = network.config | {"flip": features.flip}
    if len(features.shape) == 3:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def released_row_ids(release: Release, device: torch.device) -> Tensor:
    """Return the ids of the rows that a release covers."""
    all_row_ids = torch.arange(release.n_rows)
    row_ids = all_row_ids if release.row_mask is None else all_row_ids[torch.from_numpy(release.row_mask)]
    if not len(row_ids):
        raise InputError("The release covers no row: there is nothing to learn from.")
    return row_ids.to(device)


def hard_labels(release: Release, device: torch.device) -> Tensor:
    """Return the label code of each row, -1 where none was released."""
    if release.space.step is not None:
        raise InputError(
            "This learner is for classification, and these labels are numbers: use Bayes, "
            'Supervised(targets="posteriors"), or Regression with a scikit-learn regressor.'
        )
    return torch.from_numpy(release.labels().astype("int64")).to(device)


def make_evidence_fn(release: Release, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return a function from row ids to their log-evidence on the device."""
    if release.n_rows * len(release.space) <= _MAX_DEVICE_ENTRIES:
        table = torch.from_numpy(release.log_evidence()).to(device)
        return lambda row_ids: table[row_ids]
    return lambda row_ids: torch.from_numpy(release.log_evidence(row_ids.cpu().numpy())).to(device)


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean cross-entropy with target distributions, or any weights, over classes."""
    return -(target * F.log_softmax(logits.float(), dim=1)).sum(dim=1).mean()


@torch.no_grad()
def update_ema(ema_network: nn.Module, network: nn.Module, ema_decay: float) -> None:
    """Update the exponential moving average of a network's parameters."""
    torch._foreach_lerp_(list(ema_network.parameters()), list(network.parameters()), 1 - ema_decay)
