"""The base class of features: rows of public data as NumPy arrays and, for networks, as tensors on one device.

Linear models and trees read `matrix` and `moments`, which need no torch for tables and embeddings. Networks read
`batch` and its variations, which import torch when they are called.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.lazy import has_torch, require_torch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_DIGEST_BLOCK_ROWS = 1 << 12  # rows that a digest reads at once


class Features(ABC):
    """Rows of features. A subclass defines the network input for its rows, and their augmentations.

    Augmentations take and return batches of network input on the same device and vary each row separately. They use
    torch's generator, which the training loop seeds. It is no privacy noise, because it depends on no label.
    """

    kind: ClassVar[str]

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of a row: (channels, height, width) or (columns,); of pairs, the numbers of ids (people, items)."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of the tensors."""

    @abstractmethod
    def to(self, device: str | torch.device) -> Self:
        """Return these rows with their tensors on another device."""

    @abstractmethod
    def select(self, row_selection: Any) -> Self:
        """Return the features of some rows (indices or mask)."""

    def matrix(self, row_ids: NDArray[np.integer]) -> NDArray[Any]:
        """Return `batch` for these row numbers as a NumPy array (rows, columns)."""
        import torch

        return self.batch(torch.from_numpy(np.asarray(row_ids, np.int64))).flatten(1).cpu().numpy()

    def matrices(self, size: int) -> Iterator[NDArray[Any]]:
        """Yield `matrix` of all rows in order, at most `size` rows at a time; one empty block if there are no rows."""
        for start in range(0, max(len(self), 1), size):
            yield self.matrix(np.arange(start, min(start + size, len(self))))

    @abstractmethod
    def batch(self, row_ids: Tensor) -> Tensor:
        """Return network input for rows, without augmentation or normalization: float32, or ids as integers."""

    @abstractmethod
    def weak(self, batch: Tensor) -> Tensor:
        """Apply weak augmentations, which preserve the label."""

    @abstractmethod
    def strong(self, batch: Tensor) -> Tensor:
        """Apply strong augmentations, which mostly preserve the label."""

    @abstractmethod
    def view(self, batch: Tensor, size: int | None = None) -> Tensor:
        """Apply the augmentations of contrastive learning.

        Args:
            batch: A batch of network input.
            size: The height of the views, for images only. Smaller views need less computation.
        """

    @abstractmethod
    def moments(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return mean and deviation for each channel or column, by which models normalize their input."""

    def extreme_row_ids(self) -> NDArray[np.int64]:
        """Return the numbers of rows with extreme values, for rehearsals on few rows; empty by default."""
        return np.empty(0, np.int64)

    def digest(self) -> str:
        """Return a SHA-256 digest of the rows, which does not depend on the device."""
        digest = hashlib.sha256(f"{self.kind} {self.shape} {len(self)}".encode())
        for block in self.matrices(_DIGEST_BLOCK_ROWS):
            digest.update(block.tobytes())
        return digest.hexdigest()


def choose_device(name: str = "auto") -> torch.device:
    """Return a device of torch; "auto" is a GPU if there is one. Raise InputError if it is not available."""
    require_torch(f"The device {name!r}")
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("There is no GPU that torch can use here: choose the device cpu.")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()
    except (RuntimeError, NotImplementedError, AssertionError):
        raise InputError(f"torch can use no device {name!r} here: choose cpu or cuda.") from None
    return device


def check_device(name: str) -> str:
    """Return the name of a device; raise InputError if it is not available. Without torch, "auto" is the CPU."""
    if name == "cpu" or (name == "auto" and not has_torch()):
        return "cpu"
    return str(choose_device(name))
