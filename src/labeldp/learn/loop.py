"""The training loop of all learners of networks.

Every epoch has its own seed, so a resumed training gives the same weights as one without interruption. The seed is for
training alone: privacy noise is drawn before, from a secure random stream.
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

from labeldp.core.atomic_files import atomic_write
from labeldp.core.errors import InputError
from labeldp.learn.progress import TrainingProgress
from labeldp.learn.short_training import SHORT_STEPS, is_shortened
from labeldp.learn.training import Training


def train_network(
    network: nn.Module,
    n_rows: int,
    loss: Callable[[Tensor], Tensor],
    training: Training,
    *,
    begin_epoch: Callable[[int], None] | None = None,
    begin_step: Callable[[float], None] | None = None,
    identity: str = "",
) -> nn.Module:
    """Train a network on batches of positions from 0 to `n_rows` - 1.

    An interrupted training resumes after its last complete epoch, if it has a checkpoint.

    Args:
        network: The network, whose weights are changed.
        n_rows: The number of rows.
        loss: Returns the mean loss of a batch of positions; it calls `network` itself.
        training: The optimizer, its schedule and the checkpoint.
        begin_epoch: Called with the epoch before each epoch, in evaluation mode and without gradients.
        begin_step: Called before each step with the share of all steps that are done.
        identity: A description of learner and data, by which checkpoints are recognized.

    Returns:
        The network, or its moving average, in evaluation mode.
    """
    is_short = is_shortened()
    if is_short:
        epochs = min(training.epochs, SHORT_STEPS)
        training = replace(training, epochs=epochs, checkpoint=None, progress=False, compile=False)
    device = next(network.parameters()).device
    ema_network = copy.deepcopy(network).eval().requires_grad_(False) if training.ema_decay else None
    optimizer = _make_optimizer(network, training, n_rows)
    signature = _signature(network, training, identity)
    checkpoint = training.checkpoint
    if checkpoint is not None and checkpoint.is_dir():
        checkpoint = checkpoint / f"{signature[:32]}.pt"
    first_epoch = _resume(checkpoint, network, ema_network, optimizer, signature)
    if training.compile:
        loss = _compile_loss(loss)
    batch_size = min(training.batch_size, n_rows)
    n_steps = min(n_rows // batch_size, SHORT_STEPS) if is_short else n_rows // batch_size
    use_bfloat16 = training.precision == "bfloat16" or (training.precision == "auto" and device.type == "cuda")
    precision = torch.autocast(device.type, torch.bfloat16) if use_bfloat16 else nullcontext()
    bar = TrainingProgress(training.progress, training.epochs, first_epoch, n_rows)
    with _tune_convolutions(), _limit_threads(network, batch_size), bar as progress:
        for epoch in range(first_epoch, training.epochs):
            torch.manual_seed(training.seed * 1_000_003 + epoch)
            permutation = torch.randperm(n_rows, device=device)
            if begin_epoch is not None:
                network.eval()
                with torch.no_grad(), precision:
                    begin_epoch(epoch)
            network.train()
            total_loss = torch.zeros((), device=device)
            for step in range(n_steps):
                for group in optimizer.param_groups:
                    group["lr"] = training.rate_at((epoch + (step + 1) / n_steps) / training.epochs)
                if begin_step is not None:
                    begin_step((epoch + step / n_steps) / training.epochs)
                optimizer.zero_grad(set_to_none=True)
                with precision:
                    batch_loss = loss(permutation[step * batch_size : (step + 1) * batch_size])
                batch_loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if ema_network is not None:
                    _update_ema(ema_network, network, training.ema_decay or 0.0, epoch * n_steps + step)
                total_loss += batch_loss.detach()
            _save(checkpoint, epoch + 1, network, ema_network, optimizer, signature)
            progress.end_epoch(float(total_loss) / n_steps)
    return ema_network if ema_network is not None else network.eval()


def _make_optimizer(network: nn.Module, training: Training, n_rows: int) -> torch.optim.Optimizer:
    # Scales and shifts have no weight decay, because it would not regularize the function.
    undecayed = [p for p in network.parameters() if p.requires_grad and p.ndim <= 1]
    decayed = [p for p in network.parameters() if p.requires_grad and p.ndim > 1]
    # The loss is a mean over rows, so the weight of the prior is inversely proportional to their number.
    weight_decay = (
        training.weight_decay if training.prior_deviation is None else 1 / (training.prior_deviation**2 * n_rows)
    )
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": undecayed, "weight_decay": 0.0}]
    if training.optimizer != "sgd":
        optimizer_class = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
        return optimizer_class(groups, lr=training.learning_rate, fused=True)  # fused is faster on a CPU, too
    return torch.optim.SGD(groups, lr=training.learning_rate, momentum=training.momentum, nesterov=True, fused=True)


@torch.no_grad()
def _update_ema(ema_network: nn.Module, network: nn.Module, decay: float, step: int) -> None:
    weight = 1 - min(decay, (1 + step) / (10 + step))  # a lower decay in the first steps removes initial weights
    torch._foreach_lerp_(list(ema_network.parameters()), list(network.parameters()), weight)
    for ema_buffer, buffer in zip(ema_network.buffers(), network.buffers(), strict=True):
        ema_buffer.copy_(buffer)


def _compile_loss(loss: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Compile a loss with the augmentations and networks that it calls, and their gradients.

    On a GPU it is run as CUDA graphs, which removes the overhead of Python for small batches. Parts that cannot be
    compiled run as Python, and so does the whole loss if the compiler fails.
    """
    from torch._dynamo.exc import BackendCompilerFailed

    compiled = torch.compile(loss, mode="reduce-overhead")

    def step(positions: Tensor) -> Tensor:
        nonlocal compiled
        # The results of the last step may be overwritten.
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        try:
            return compiled(positions)
        except BackendCompilerFailed as error:
            reason = str(error.inner_exception).partition("\n")[0]
            warnings.warn(f"torch fails to compile this loss, so it runs without compilation: {reason}", stacklevel=3)
            compiled = loss
            return loss(positions)

    return step


@contextmanager
def _tune_convolutions() -> Iterator[None]:
    """Let cuDNN benchmark convolutions, which pays because shapes are constant."""
    previous = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = previous


_SINGLE_THREAD_MULTIPLICATIONS = 12_000_000  # multiplications in a step up to which a second thread gains nothing


@contextmanager
def _limit_threads(network: nn.Module, batch_size: int) -> Iterator[None]:
    """Limit small networks to one thread: more threads do not help, and on a busy machine they wait for each other."""
    weights = [value for value in network.parameters() if value.ndim > 1]
    is_dense_on_cpu = all(value.device.type == "cpu" and value.ndim == 2 for value in weights)
    previous = torch.get_num_threads()
    if is_dense_on_cpu and batch_size * sum(value.numel() for value in weights) <= _SINGLE_THREAD_MULTIPLICATIONS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


_MACHINE_SETTINGS = ("precision", "compile", "device", "checkpoint", "progress")


def _signature(network: nn.Module, training: Training, identity: str) -> str:
    """Return a digest of the network, the data and the settings that a resumed training must share."""
    shapes = [(name, tuple(value.shape)) for name, value in network.state_dict().items()]
    settings = [(f.name, getattr(training, f.name)) for f in fields(training) if f.name not in _MACHINE_SETTINGS]
    return hashlib.sha256(repr((shapes, settings, identity)).encode()).hexdigest()


def _save(path: Path | None, epoch: int, network: nn.Module, ema_network: Any, optimizer: Any, signature: str) -> None:
    if path is None:
        return
    state = {
        "signature": signature,
        "epoch": epoch,
        "network": network.state_dict(),
        "average": ema_network.state_dict() if ema_network is not None else None,
        "optimizer": optimizer.state_dict(),
    }
    with atomic_write(path, overwrite=True) as partial:
        torch.save(state, partial)


def _resume(path: Path | None, network: nn.Module, ema_network: Any, optimizer: Any, signature: str) -> int:
    """Load the checkpoint if it exists, and return the next epoch."""
    if path is None or not path.is_file():
        return 0
    try:
        state = torch.load(path, map_location=next(network.parameters()).device, weights_only=True)
        saved_signature = state["signature"]
    except Exception:
        raise InputError(f"{path} is not a checkpoint, or it is damaged: remove it to start again.") from None
    if saved_signature != signature:
        raise InputError(f"{path} belongs to another model, release or training: remove it or name another.")
    network.load_state_dict(state["network"])
    if ema_network is not None:
        ema_network.load_state_dict(state["average"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])
