"""Two encoders in one training: one that goes on at its full rate ends elsewhere (Huang et al. 2017)."""

import copy
from dataclasses import replace
from typing import Any

from torch import nn

from labeldp.core.errors import InputError
from labeldp.data.base import Features, choose_device
from labeldp.data.images import Images
from labeldp.learn.backbone_names import backbones_for
from labeldp.learn.base import Backbone, beside
from labeldp.learn.encoded import side_by_side
from labeldp.learn.model import Model
from labeldp.learn.training import Training
from labeldp.representation.base import Representation
from labeldp.representation.momentum import MoCo

_TALL = 24  # pixels, from which views that are smaller than the pictures show enough


def check_backbone(name: str) -> None:
    """Say at once if there is no such network for pictures."""
    known = ["auto", *backbones_for(3)]
    if name not in known:
        raise InputError(f"There is no network {name!r} for pictures: choose {', '.join(known[:-1])} or {known[-1]}.")


def two_encoders(pictures: Images, backbone: Backbone = "auto", epochs: int | None = None, **training: Any) -> Model:
    """Train encoders of pictures as they were trained for CIFAR-10: on a GPU 240 epochs of 50,000, and then 300.

    By default fewer pictures have more epochs, up to 400 for the first encoder. A CPU has a tenth, between 10 and 60,
    and a small network, which is a beginning. `training` is more of `Training`.
    """
    fast = choose_device(training.get("device", "auto")).type == "cuda"
    seen, most = (12_000_000, 400) if fast else (1_200_000, 60)
    usual = min(max(seen // max(len(pictures), 1), 10), most)
    # At a low rate it begins to learn the pictures by heart: a fifth of the rate is left at the end.
    settings = {"rate": 0.5, "floor": 0.2, "decay": 1e-4, "warmup": 0.02, "compile": fast}
    schedule = Training(epochs or usual, **{"batch": 256} | settings | training)
    if backbone == "auto":
        backbone = "resnet18" if fast else "cnn"
    height = pictures.shape[1]
    size = round(0.75 * height) if backbone == "resnet18" and height >= _TALL else None
    method = MoCo(backbone, schedule, size=size, views=4, hidden=4096, projection=256)
    return with_restart(method, pictures, max(round(1.25 * schedule.epochs), 1))


def with_restart(method: Representation, features: Features, epochs: int) -> Model:
    """Train an encoder, go on from it for so many epochs as if training began, and set both side by side.

    Neither need be better than the other. They err on different rows, so that a linear model of both can be.
    """
    training = method.training
    begin = replace(training.named("first encoder"), checkpoint=beside(training.checkpoint))
    first = replace(method, training=begin).fit(features)

    def begun(shape: tuple[int, ...], classes: int) -> nn.Module:
        return copy.deepcopy(first.network).requires_grad_(True)

    # With another seed it sees other views, and a folder of checkpoints tells the two apart.
    again = replace(training.named("second encoder"), epochs=epochs, seed=training.seed + 1)
    second = replace(method, backbone=begun, training=again).fit(features)
    return side_by_side([first, second], features)
