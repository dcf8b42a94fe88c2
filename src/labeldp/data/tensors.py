"""Tensors of NumPy rows, which are created at their first use on a device and never pickled or copied."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

_TENSOR_SUFFIX = "_tensor"  # ends the names of attributes that hold such a tensor
_Instance = TypeVar("_Instance")


def to_tensor(array: NDArray[Any], device: str) -> Tensor:
    """Return an array as a tensor on a device. On a CPU it shares the memory of a writable, contiguous array."""
    import torch

    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)


def state_without_tensors(features: Any) -> dict[str, Any]:
    """Return the state of features for a copy or a pickle, without their tensors, which can be created again."""
    return {name: value for name, value in vars(features).items() if not name.endswith(_TENSOR_SUFFIX)}


def copy_with(instance: _Instance, **attributes: Any) -> _Instance:
    """Return a shallow copy of an object in which some attributes, also private ones, have other values."""
    other = copy.copy(instance)
    vars(other).update(attributes)
    return other
