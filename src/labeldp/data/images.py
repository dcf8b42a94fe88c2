"""Images: pixels stored as bytes, converted to floats batch by batch."""

import hashlib
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labeldp.core.errors import InputError
from labeldp.data import augment
from labeldp.data.base import Features, choose_device
from labeldp.data.feature_rows import row_indices
from labeldp.data.tensors import copy_with

_MAX_DEGREES, _MAX_DEGREES_WITHOUT_FLIP = 30.0, 10.0


class Images(Features):
    """Images of one size, uint8 of shape (rows, channels, height, width) with 1 or 3 channels.

    Args:
        pixels: The images.
        flip: Whether a mirror image has the same label. It is false for digits and letters, which are never flipped and
            are rotated by small angles only.
        device: The device of the pixels.
    """

    kind: ClassVar[str] = "images"

    def __init__(self, pixels: Any, flip: bool = True, device: str | torch.device = "cpu") -> None:
        if not isinstance(pixels, Tensor):
            array = np.asarray(pixels)
            pixels = torch.from_numpy(array if array.flags.writeable else array.copy())
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
            raise InputError(
                "Images must be uint8 of shape (rows, channels, height, width) with 1 or 3 channels, "
                f"not {str(pixels.dtype).removeprefix('torch.')} of shape {tuple(pixels.shape)}."
            )
        if 0 in pixels.shape[2:]:
            raise InputError("Images must have at least one pixel.")
        self.flip = flip
        # Channels last, as in batches: a row is contiguous, in the layout that networks use.
        self._pixels = pixels.permute(0, 2, 3, 1).contiguous().to(choose_device(str(device)))

    def __len__(self) -> int:
        return len(self._pixels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height, width."""
        _, height, width, channels = self._pixels.shape
        return channels, height, width

    @property
    def device(self) -> torch.device:
        """The device of the pixels."""
        return self._pixels.device

    def to(self, device: str | torch.device) -> Self:
        """Return these images on another device."""
        return self._with_pixels(self._pixels.to(choose_device(str(device))))

    def select(self, row_selection: Any) -> Self:
        """Return the images of some rows."""
        return self._with_pixels(self._pixels[torch.from_numpy(row_indices(row_selection, len(self))).to(self.device)])

    def batch(self, row_ids: Tensor) -> Tensor:
        """Return rows as float32 in [0, 1], in the channels-last memory format."""
        return self._pixels[row_ids.to(self.device)].permute(0, 3, 1, 2).float().div_(255)

    def weak(self, batch: Tensor) -> Tensor:
        """Flip, if allowed, and shift by up to an eighth of the height."""
        if self.flip:
            batch = augment.flip(batch)
        # Reflection suits photographs. It would put mirrored parts of strokes beside a digit.
        return _channels_last(augment.shift(batch, self.shape[1] // 8, reflect=self._is_photographic))

    def strong(self, batch: Tensor) -> Tensor:
        """Apply `weak`, then two operations of RandAugment, then Cutout."""
        degrees = _MAX_DEGREES if self.flip else _MAX_DEGREES_WITHOUT_FLIP
        return _channels_last(augment.randaugment_and_cutout(self.weak(batch), max_degrees=degrees))

    def view(self, batch: Tensor, size: int | None = None) -> Tensor:
        """Crop, flip if allowed, and vary colors, as SimCLR does; crops may be smaller."""
        height, width = batch.shape[2:]
        crop_size = None if size is None else (size, round(size * width / height))
        crop = augment.resized_crop(batch, flip_probability=0.5 if self.flip else 0.0, size=crop_size)
        varied = augment.jitter(crop, saturation=0.2)
        # Inverting bright values suits photographs only. It would erase the strokes of a digit.
        return _channels_last(augment.invert_bright(varied) if self._is_photographic else varied)

    def moments(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return mean and deviation of each channel over all pixels, in the units of `batch`."""
        if not len(self):
            raise InputError("There are no images, so their channels have no mean.")
        values = torch.arange(256, dtype=torch.float64, device=self.device) / 255
        counts = [torch.bincount(channel.flatten(), minlength=256) for channel in self._pixels.unbind(3)]
        frequencies = torch.stack(counts).double() / counts[0].sum()
        mean = (frequencies * values).sum(1)
        deviation = (frequencies * (values - mean[:, None]).square()).sum(1).sqrt()
        deviation = torch.where(deviation < 1e-6, 1.0, deviation)  # a constant channel
        return mean.float().cpu().numpy(), deviation.float().cpu().numpy()

    def digest(self) -> str:
        """Return a digest of the pixels and of `flip`."""
        return hashlib.sha256(f"{super().digest()} {self.flip}".encode()).hexdigest()

    @property
    def _is_photographic(self) -> bool:
        return self.flip and self._pixels.shape[3] == 3

    def _with_pixels(self, pixels: Tensor) -> Self:
        return copy_with(self, _pixels=pixels)


def _channels_last(batch: Tensor) -> Tensor:
    return batch.contiguous(memory_format=torch.channels_last)
