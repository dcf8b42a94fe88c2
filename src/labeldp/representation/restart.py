"""Two encoders from one training with a restart of the learning rate (Huang et al. 2017)."""

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

_MIN_HEIGHT_FOR_CROPS = 24  # pixels from which views may be smaller than the images


def check_backbone(name: str) -> None:
    """Raise an error if there is no backbone of this name for images.

    Raises:
        InputError: The name is unknown.
    """
    names = ["auto", *backbones_for(3)]
    if name not in names:
        raise InputError(f"There is no network {name!r} for pictures: choose {', '.join(names[:-1])} or {names[-1]}.")


def train_two_encoders(
    images: Images, backbone: Backbone = "auto", epochs: int | None = None, **training: Any
) -> Model:
    """Train two encoders of images by MoCo and concatenate them.

    The settings are those of CIFAR-10: on a GPU, 240 epochs of 50,000 images, and then 300. By default, fewer images
    have more epochs, up to 400 for the first encoder. A CPU has a tenth of the epochs, between 10 and 60, and a small
    network.

    Args:
        images: The images.
        backbone: The backbone; "auto" for `resnet18` on a GPU, and else `cnn`.
        epochs: The epochs of the first encoder; None for the default.
        **training: Further fields of `Training`.

    Returns:
        The concatenated encoder.
    """
    on_gpu = choose_device(training.get("device", "auto")).type == "cuda"
    image_passes, max_epochs = (12_000_000, 400) if on_gpu else (1_200_000, 60)
    default_epochs = min(max(image_passes // max(len(images), 1), 10), max_epochs)
    # A lower final rate would lead to memorization of the images.
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
    """Train an encoder, train a second one from its weights with a new schedule, and concatenate both.

    The two encoders make different errors, so a linear model of both can be better than one of either.

    Args:
        learner: The settings of the first training.
        features: The rows.
        epochs: The epochs of the second training.

    Returns:
        The concatenated encoder.
    """
    training = learner.training
    first_training = replace(
        training.with_progress_name("first encoder"), checkpoint=first_checkpoint(training.checkpoint)
    )
    first = replace(learner, training=first_training).fit(features)

    def copy_first_network(shape: tuple[int, ...], n_classes: int) -> nn.Module:
        return copy.deepcopy(first.network).requires_grad_(True)

    # With another seed, views differ, and so does the name of the checkpoint in a folder.
    second_training = replace(training.with_progress_name("second encoder"), epochs=epochs, seed=training.seed + 1)
    second = replace(learner, backbone=copy_first_network, training=second_training).fit(features)
    return concat_encoders([first, second], features)
