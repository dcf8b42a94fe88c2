"""The one training loop that all learners share.

Every epoch begins from its own seed, so that a run resumed after any epoch gives the same weights as one that was
never stopped. The seed is for training alone: privacy noise was drawn before, elsewhere, and has none.
"""

import copy
import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labeldp.core.atomic_files import written_whole
from labeldp.core.errors import InputError
from labeldp.learn.effort import STEPS, is_shortened
from labeldp.learn.progress import Progress
from labeldp.learn.training import Training


def train(
    network: nn.Module,
    rows: int,
    loss: Callable[[Tensor], Tensor],
    training: Training,
    *,
    begin_epoch: Callable[[int], None] | None = None,
    begin_step: Callable[[float], None] | None = None,
    identity: str = "",
) -> nn.Module:
    """Train `network` on batches of positions 0..rows-1 and return it, or its moving average.

    `loss(positions)` returns the mean loss of a batch; it calls `network` itself. `begin_epoch(epoch)` runs before
    each epoch, in evaluation mode and without gradients; `begin_step(done)` before each step, with the share of all
    steps that are done. `identity` says what is learnt from what, for checkpoints: an interrupted training goes on from
    its last whole epoch.
    """
    short = is_shortened()
    if short:
        few = min(training.epochs, STEPS)
        training = replace(training, epochs=few, checkpoint=None, progress=False, compile=False)
    device = next(network.parameters()).device
    average = copy.deepcopy(network).eval().requires_grad_(False) if training.average else None
    optimizer = _optimizer(network, training, rows)
    signature = _signature(network, training, identity)
    checkpoint = training.checkpoint
    if checkpoint is not None and checkpoint.is_dir():
        checkpoint = checkpoint / f"{signature[:32]}.pt"
    first = _resume(checkpoint, network, average, optimizer, signature)
    if training.compile:
        loss = _compiled(loss)
    size = min(training.batch, rows)
    steps = min(rows // size, STEPS) if short else rows // size
    half = training.precision == "bfloat16" or (training.precision == "auto" and device.type == "cuda")
    precision = torch.autocast(device.type, torch.bfloat16) if half else nullcontext()
    bar = Progress(training.progress, training.epochs, first, rows)
    with _fastest_convolutions(), _threads_that_pay(network, size), bar as progress:
        for epoch in range(first, training.epochs):
            torch.manual_seed(training.seed * 1_000_003 + epoch)
            order = torch.randperm(rows, device=device)
            if begin_epoch is not None:
                network.eval()
                with torch.no_grad(), precision:
                    begin_epoch(epoch)
            network.train()
            total = torch.zeros((), device=device)
            for step in range(steps):
                for group in optimizer.param_groups:
                    group["lr"] = training.rate_at((epoch + (step + 1) / steps) / training.epochs)
                if begin_step is not None:
                    begin_step((epoch + step / steps) / training.epochs)
                optimizer.zero_grad(set_to_none=True)
                with precision:
                    value = loss(order[step * size : (step + 1) * size])
                value.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if average is not None:
                    _move_average(average, network, training.average or 0.0, epoch * steps + step)
                total += value.detach()
            _save(checkpoint, epoch + 1, network, average, optimizer, signature)
            progress.epoch(float(total) / steps)
    return average if average is not None else network.eval()


def _optimizer(network: nn.Module, training: Training, rows: int) -> torch.optim.Optimizer:
    # Scales and shifts are not decayed: pulling them to zero regularises nothing.
    plain = [p for p in network.parameters() if p.requires_grad and p.ndim <= 1]
    decayed = [p for p in network.parameters() if p.requires_grad and p.ndim > 1]
    # The loss is a mean over rows, so the more there are, the less a prior weighs.
    decay = training.decay if training.prior is None else 1 / (training.prior**2 * rows)
    groups = [{"params": decayed, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]
    if training.optimizer != "sgd":
        kind = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
        return kind(groups, lr=training.rate, fused=True)  # many small steps take long on a CPU, too
    return torch.optim.SGD(groups, lr=training.rate, momentum=training.momentum, nesterov=True, fused=True)


@torch.no_grad()
def _move_average(average: nn.Module, network: nn.Module, decay: float, step: int) -> None:
    weight = 1 - min(decay, (1 + step) / (10 + step))  # the first weights are worth little: forget them fast
    torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), weight)
    for ours, theirs in zip(average.buffers(), network.buffers(), strict=True):
        ours.copy_(theirs)


def _compiled(loss: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Compile a loss with all that it calls, augmentations and networks, and their gradients.

    On a GPU it becomes CUDA graphs, without which small batches wait for Python. What cannot be compiled runs as it is,
    and so does the whole where the compiler itself fails.
    """
    fast = torch.compile(loss, mode="reduce-overhead")

    def step(positions: Tensor) -> Tensor:
        nonlocal fast
        # What the last step returned may be overwritten.
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        try:
            return fast(positions)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            reason = str(error.inner_exception).partition("\n")[0]
            warnings.warn(f"torch fails to compile this loss, so it runs as it is: {reason}", stacklevel=3)
            fast = loss
            return loss(positions)

    return step


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Let cuDNN look for the fastest convolutions: shapes stay the same all through, so the search pays."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


_ALONE = 12_000_000  # multiplications in a step up to which a second thread gains nothing


@contextmanager
def _threads_that_pay(network: nn.Module, size: int) -> Iterator[None]:
    """Train a small network on one thread: two gain nothing, and on a busy machine they wait for each other."""
    weights = [value for value in network.parameters() if value.ndim > 1]
    flat = all(value.device.type == "cpu" and value.ndim == 2 for value in weights)
    before = torch.get_num_threads()
    if flat and size * sum(value.numel() for value in weights) <= _ALONE:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_OF_THE_MACHINE = ("precision", "compile", "device", "checkpoint", "progress")


def _signature(network: nn.Module, training: Training, identity: str) -> str:
    """Identify the model and the parts of its training that a resumed run must share."""
    shapes = [(name, tuple(value.shape)) for name, value in network.state_dict().items()]
    shared = [(f.name, getattr(training, f.name)) for f in fields(training) if f.name not in _OF_THE_MACHINE]
    return hashlib.sha256(repr((shapes, shared, identity)).encode()).hexdigest()


def _save(path: Path | None, epoch: int, network: nn.Module, average: Any, optimizer: Any, signature: str) -> None:
    if path is None:
        return
    state = {
        "signature": signature,
        "epoch": epoch,
        "network": network.state_dict(),
        "average": average.state_dict() if average is not None else None,
        "optimizer": optimizer.state_dict(),
    }
    with written_whole(path, overwrite=True) as partial:
        torch.save(state, partial)


def _resume(path: Path | None, network: nn.Module, average: Any, optimizer: Any, signature: str) -> int:
    """Load a checkpoint where there is one, and return the epoch to go on with."""
    if path is None or not path.is_file():
        return 0
    try:
        state = torch.load(path, map_location=next(network.parameters()).device, weights_only=True)
        found = state["signature"]
    except Exception:
        raise InputError(f"{path} is not a checkpoint, or it is damaged: remove it to start again.") from None
    if found != signature:
        raise InputError(f"{path} belongs to another model, release or training: remove it or name another.")
    network.load_state_dict(state["network"])
    if average is not None:
        average.load_state_dict(state["average"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])
