"""Weights in a quarter of their bytes, for encoders that travel."""

import torch
from torch import Tensor

_STEPS = "8 bits: steps of "  # before the name of a tensor, the name of what its whole numbers count

State = dict[str, Tensor]


def pack(state: State) -> State:
    """Write matrices and kernels in 8 bits, in steps of the largest weight of each output; the rest in 16.

    A weight moves by at most half a step, the 254th part of the largest one beside it.
    """
    packed: State = {}
    for name, value in state.items():
        if value.is_floating_point() and value.ndim > 1:
            flat = value.float().flatten(1)
            steps = (flat.abs().amax(dim=1) / 127).clamp_min(1e-12)
            packed[name] = (flat / steps[:, None]).round().to(torch.int8).view(value.shape)
            packed[_STEPS + name] = steps
        else:
            short = value.half() if value.is_floating_point() else value
            packed[name] = short if bool(short.isfinite().all()) else value
    return packed


def unpack(state: State) -> State:
    """Return float32 weights of what `pack` wrote; other states stay as they are."""
    whole = {name: value for name, value in state.items() if not name.startswith(_STEPS)}
    for name, steps in state.items():
        if name.startswith(_STEPS):
            counted = whole[name.removeprefix(_STEPS)]
            whole[name.removeprefix(_STEPS)] = (counted.float().flatten(1) * steps[:, None]).view(counted.shape)
    return whole
