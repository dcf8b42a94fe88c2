"""The settings of a training of networks, without an import of torch; `loop` runs the training."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from labeldp.core.errors import InputError


@dataclass(frozen=True)
class Training:
    """The optimizer of a training, its schedule, the precision, and the checkpoint.

    Attributes:
        epochs: The number of epochs.
        batch_size: The rows of a step.
        optimizer: "sgd", "adam" or "adamw".
        learning_rate: The largest learning rate.
        momentum: The momentum of "sgd".
        weight_decay: The penalty on squared weights; for "adamw" the decoupled weight decay.
        prior_deviation: The standard deviation of a normal prior on each weight, in place of `weight_decay`; for "sgd"
            and "adam".
        warmup_fraction: The share of all steps in which the learning rate rises; then it falls along a cosine.
        final_rate_fraction: The last learning rate as a share of the largest one.
        ema_decay: The decay of an exponential moving average of the weights; None for no average.
        precision: "float32", "bfloat16", or "auto" for bfloat16 on a GPU.
        compile: Whether to compile the loss, as CUDA graphs on a GPU; it pays after some minutes of training.
        device: "auto", or a torch device.
        seed: The seed of weights, batches and augmentation.
        checkpoint: A file, or an existing folder in which each training has its own file; None for no checkpoint.
        progress: Whether to show a progress bar, its name, or a callback with epoch and loss.
    """

    epochs: int = 30
    batch_size: int = 256
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    prior_deviation: float | None = None
    warmup_fraction: float = 0.05
    final_rate_fraction: float = 0.0
    ema_decay: float | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    device: str = "auto"
    seed: int = 0
    checkpoint: Path | None = None
    progress: bool | str | Callable[[int, float], None] = False

    def __post_init__(self) -> None:
        if self.prior_deviation is not None and (self.prior_deviation <= 0 or self.optimizer == "adamw"):
            raise InputError(
                "prior_deviation must be above zero and needs sgd or adam: the weight decay of adamw is no penalty."
            )
        if self.epochs < 1 or self.batch_size < 1 or self.learning_rate <= 0:
            raise InputError("Training needs at least one epoch, one row a batch, and a learning_rate above zero.")

    def with_progress_name(self, name: str) -> "Training":
        """Return the same settings with a name for the progress bar, if there is one."""
        return replace(self, progress=name) if self.progress is True else self

    def rate_at(self, fraction_done: float) -> float:
        """Return the learning rate after a share of all steps."""
        if fraction_done < self.warmup_fraction:
            return self.learning_rate * fraction_done / self.warmup_fraction
        decay_fraction = 0.5 * (
            1 - math.cos(math.pi * (fraction_done - self.warmup_fraction) / (1 - self.warmup_fraction))
        )
        return self.learning_rate * (1 - (1 - self.final_rate_fraction) * decay_fraction)
