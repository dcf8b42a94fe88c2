"""Two encoders in one training: one that goes on at its full rate ends elsewhere (Huang et al. 2017)."""

import copy
from dataclasses import replace
from typing import Any

from torch import nn

from labeldp.core.errors import InputError
from labeldp.data.base import Features, choose_device
from labeldp.data.images import Images
from labeldp.learn.backbone_names import backbones_for
from labeldp.learn.base import Backbone, first_checkpoint
from labeldp.learn.encoded import concat_encoders
from labeldp.learn.model import Model
from labeldp.learn.training import Training
from labeldp.representation.base import Representation
from labeldp.representation.momentum import MoCo

_MIN_HEIGHT_FOR_CROPS = 24  # pixels, from which views that are smaller than the pictures show enough


def check_backbone(name: str) -> None:
    """Say at once if there is no such network for pictures."""
    names = ["auto", *backbones_for(3)]
    if name not in names:
        raise InputError(f"There is no network {name!r} for pictures: choose {', '.join(names[:-1])} or {names[-1]}.")


def train_two_encoders(
    images: Images, backbone: Backbone = "auto", epochs: int | None = None, **training: Any
) -> Model:
    """Train encoders of pictures as they were trained for CIFAR-10: on a GPU 240 epochs of 50,000, and then 300.

    By default fewer pictures have more epochs, up to 400 for the first encoder. A CPU has a tenth, between 10 and 60,
    and a small network, which is a beginning. `training` is more of `Training`.
    """
    on_gpu = choose_device(training.get("device", "auto")).type == "cuda"
    image_passes, max_epochs = (12_000_000, 400) if on_gpu else (1_200_000, 60)
    default_epochs = min(max(image_passes // max(len(images), 1), 10), max_epochs)
    # At a low rate it begins to learn the pictures by heart: a fifth of the rate is left at the end.
    settings = {
        "learning_rate": 0.5,
        "final_rate_fraction": 0.2,
        "weight_decay": 1e-4,
        "warmup_fraction": 0.02,
        "compile": on_gpu,
    }
    schedule = Training(epochs or default_epochs, **{"batch_size": 256} | settings | training)
    if backbone == "auto":
        backbone = "resnet18" if on_gpu else "cnn"
    height = images.shape[1]
    size = round(0.75 * height) if backbone == "resnet18" and height >= _MIN_HEIGHT_FOR_CROPS else None
    learner = MoCo(backbone, schedule, view_size=size, n_views=4, hidden_features=4096, projection_features=256)
    return train_with_restart(learner, images, max(round(1.25 * schedule.epochs), 1))


def train_with_restart(learner: Representation, features: Features, epochs: int) -> Model:
    """Train an encoder, go on from it for so many epochs as if training began, and set both side by side.

    Neither need be better than the other. They err on different rows, so that a linear model of both can be.
    """
    training = learner.training
    first_training = replace(
        training.with_progress_name("first encoder"), checkpoint=first_checkpoint(training.checkpoint)
    )
    first = replace(learner, training=first_training).fit(features)

    def copy_first_network(shape: tuple[int, ...], n_classes: int) -> nn.Module:
        return copy.deepcopy(first.network).requires_grad_(True)

    # With another seed it sees other views, and a folder of checkpoints tells the two apart.
    second_training = replace(training.with_progress_name("second encoder"), epochs=epochs, seed=training.seed + 1)
    second = replace(learner, backbone=copy_first_network, training=second_training).fit(features)
    return concat_encoders([first, second], features)
