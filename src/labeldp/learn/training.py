"""How networks are trained: a description that needs no torch, which `loop` follows."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from labeldp.core.errors import InputError


@dataclass(frozen=True)
class Training:
    """How to train: the optimiser and its schedule, precision, and where checkpoints go."""

    epochs: int = 30
    batch_size: int = 256
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4  # a penalty in the loss, or with adamw a share of each weight at each step
    prior_deviation: float | None = (
        None  # in place of decay: the deviation of a normal prior on each weight, for sgd and adam
    )
    warmup_fraction: float = 0.05  # the share of all steps in which the rate rises; then it follows a cosine
    final_rate_fraction: float = 0.0  # the share of the rate that is left at the end
    ema_decay: float | None = None  # decay of an exponential moving average of the weights
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on a GPU
    compile: bool = False  # the whole loss, as CUDA graphs on a GPU: pays after some minutes of training
    device: str = "auto"
    seed: int = 0
    checkpoint: Path | None = None  # a file, or an existing folder, in which each training has a file of its own
    progress: bool | str | Callable[[int, float], None] = False  # a bar, its name, or what hears epochs and losses

    def __post_init__(self) -> None:
        if self.prior_deviation is not None and (self.prior_deviation <= 0 or self.optimizer == "adamw"):
            raise InputError("A prior needs a deviation above zero, and sgd or adam: the decay of adamw is no penalty.")
        if self.epochs < 1 or self.batch_size < 1 or self.learning_rate <= 0:
            raise InputError("Training needs at least one epoch, one row a batch, and a rate above zero.")

    def with_progress_name(self, name: str) -> "Training":
        """Return the same training with a bar of that name, if it has one."""
        return replace(self, progress=name) if self.progress is True else self

    def rate_at(self, fraction_done: float) -> float:
        """Return the learning rate after a share of all steps."""
        if fraction_done < self.warmup_fraction:
            return self.learning_rate * fraction_done / self.warmup_fraction
        decay_fraction = 0.5 * (
            1 - math.cos(math.pi * (fraction_done - self.warmup_fraction) / (1 - self.warmup_fraction))
        )
        return self.learning_rate * (1 - (1 - self.final_rate_fraction) * decay_fraction)
