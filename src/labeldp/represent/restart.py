"""Two encoders in one training: one that goes on at its full rate ends elsewhere (Huang et al. 2017)."""

import copy
from dataclasses import replace

from torch import nn

from labeldp.features.base import Features
from labeldp.learn.base import beside
from labeldp.learn.encoded import side_by_side
from labeldp.learn.model import Model
from labeldp.represent.base import Representation


def with_restart(method: Representation, features: Features, epochs: int) -> Model:
    """Train an encoder, go on from it for so many epochs as if training began, and set both side by side.

    Neither need be better than the other. They err on different rows, so that a linear model of both can be.
    """
    training = method.training
    first = replace(method, training=replace(training, checkpoint=beside(training.checkpoint))).fit(features)

    def begun(shape: tuple[int, ...], classes: int) -> nn.Module:
        return copy.deepcopy(first.network).requires_grad_(True)

    # With another seed it sees other views, and a folder of checkpoints tells the two apart.
    again = replace(training, epochs=epochs, seed=training.seed + 1)
    second = replace(method, backbone=begun, training=again).fit(features)
    return side_by_side([first, second], features)
