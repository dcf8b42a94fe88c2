"""Quantized weights, which take a quarter of the bytes of float32 weights."""

import torch
from torch import Tensor

_SCALE_PREFIX = "8 bits: steps of "  # with the name of a quantized tensor, the name of its scales

StateDict = dict[str, Tensor]


def pack(state: StateDict) -> StateDict:
    """Quantize matrices and kernels to 8 bits, with a scale for each output, and other floats to 16 bits.

    The error of a weight is at most 1/254 of the largest weight of the same output.
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
    """Return the float32 weights of a state that `pack` returned; other states are unchanged."""
    weights = {name: value for name, value in state.items() if not name.startswith(_SCALE_PREFIX)}
    for name, scales in state.items():
        if name.startswith(_SCALE_PREFIX):
            quantized = weights[name.removeprefix(_SCALE_PREFIX)]
            weights[name.removeprefix(_SCALE_PREFIX)] = (quantized.float().flatten(1) * scales[:, None]).view(
                quantized.shape
            )
    return weights
