"""Tensors of NumPy rows: made at their first use on one device, and never pickled or copied with the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

_TENSOR_SUFFIX = "_tensor"  # of the names of attributes that hold such a tensor


def to_tensor(array: NDArray[Any], device: str) -> Tensor:
    """Return an array as a tensor on a device; on a CPU it shares the memory of an array that may be written to."""
    import torch

    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)


def state_without_tensors(features: Any) -> dict[str, Any]:
    """Return the state of features for a copy or a pickle: all but their tensors, which can be made again."""
    return {name: value for name, value in vars(features).items() if not name.endswith(_TENSOR_SUFFIX)}
