"""What the learner sees: rows of public features, resident on one device, with their augmentations."""

import hashlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeldp.errors import InputError


class Features(ABC):
    """Rows of features. A subclass knows how its kind of row is made into network input, and how it may be varied.

    Augmentations take and return batches of network input, on the same device, each row varied by itself. Their
    randomness is torch's own, which the training loop seeds; it touches no label and is no privacy noise.
    """

    kind: ClassVar[str]

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of a row: (channels, height, width) or (columns,). Of ids, how many there are: (people, items)."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the rows are."""

    @abstractmethod
    def to(self, device: str | torch.device) -> Self:
        """Move the rows."""

    @abstractmethod
    def select(self, rows: Any) -> Self:
        """Return the features of some rows (indices or mask)."""

    @abstractmethod
    def batch(self, rows: Tensor) -> Tensor:
        """Return network input for rows, by index, not varied and not normalised: float32, or ids as whole numbers."""

    @abstractmethod
    def weak(self, batch: Tensor) -> Tensor:
        """Vary a batch slightly: what any sensible person would still label alike."""

    @abstractmethod
    def strong(self, batch: Tensor) -> Tensor:
        """Vary a batch as much as its labels can bear."""

    @abstractmethod
    def view(self, batch: Tensor, size: int | None = None) -> Tensor:
        """Vary a batch for contrastive learning: two views of a row share what matters.

        Views of pictures may be smaller, `size` pixels high: they teach as much and cost less. Other rows have no size.
        """

    @abstractmethod
    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and deviation for each channel or column, by which a network normalises its input."""

    def extreme_rows(self) -> NDArray[np.int64]:
        """Return some rows with extreme values, for trials on few rows; none where rows of a kind are much alike."""
        return np.empty(0, np.int64)

    def digest(self) -> str:
        """Tell these rows from others, wherever they are."""
        found = hashlib.sha256(f"{self.kind} {self.shape} {len(self)}".encode())
        for rows in torch.split(torch.arange(len(self), device=self.device), 1 << 12):
            found.update(self.batch(rows).contiguous().cpu().numpy().tobytes())
        return found.hexdigest()


def choose_device(name: str = "auto") -> torch.device:
    """Return the device asked for, or say that it is not there; "auto" takes a GPU where there is one."""
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
