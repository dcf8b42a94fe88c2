"""Weights in a quarter of their bytes, for encoders that travel."""

import torch
from torch import Tensor

_SCALE_PREFIX = "8 bits: steps of "  # before the name of a tensor, the name of what its whole numbers count

StateDict = dict[str, Tensor]


def pack(state: StateDict) -> StateDict:
    """Write matrices and kernels in 8 bits, in steps of the largest weight of each output; the rest in 16.

    A weight moves by at most half a step, the 254th part of the largest one beside it.
    """
    quantized: StateDict = {}
    for name, value in state.items():
        if value.is_floating_point() and value.ndim > 1:
            flat = value.float().flatten(1)
            scales = (flat.abs().amax(dim=1) / 127).clamp_min(1e-12)
            quantized[name] = (flat / scales[:, None]).round().to(torch.int8).view(value.shape)
            quantized[_SCALE_PREFIX + name] = scales
        else:
            half_precision = value.half() if value.is_floating_point() else value
            quantized[name] = half_precision if bool(half_precision.isfinite().all()) else value
    return quantized


def unpack(state: StateDict) -> StateDict:
    """Return float32 weights of what `pack` wrote; other states stay as they are."""
    weights = {name: value for name, value in state.items() if not name.startswith(_SCALE_PREFIX)}
    for name, scales in state.items():
        if name.startswith(_SCALE_PREFIX):
            quantized = weights[name.removeprefix(_SCALE_PREFIX)]
            weights[name.removeprefix(_SCALE_PREFIX)] = (quantized.float().flatten(1) * scales[:, None]).view(
                quantized.shape
            )
    return weights
