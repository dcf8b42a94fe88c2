"""Random image augmentations on whole batches.

Each row has its own draw from torch's generator on its device. Batches are as in `transforms`. Neutral settings return
the batch exactly.
"""

import math

import torch
from torch import Tensor

from labeldp.data.transforms import (
    adjust_color,
    broadcast_per_row,
    cover_square,
    gather_pixels,
    make_affine_maps,
    posterize,
    sharpen,
    solarize,
    stretch_or_equalize,
    warp,
)

# The operations of `randaugment`: lowest and highest value of the parameter, and its neutral value. They are applied in
# this order, so that one warp and one color matrix apply all operations of a type.
OPERATIONS: dict[str, tuple[float, float, float]] = {
    "nothing": (0, 0, 0),
    "degrees": (-1, 1, 0),  # times `max_degrees`
    "shear_right": (-0.3, 0.3, 0),
    "shear_down": (-0.3, 0.3, 0),
    "right": (-0.3, 0.3, 0),
    "down": (-0.3, 0.3, 0),
    "solarize": (0, 1, 1),  # before the colors: inverting saturated colors gives noise
    "posterize": (4, 8, 8),
    "stretch": (1, 1, 0),
    "equalize": (1, 1, 0),
    "brightness": (0.2, 1.8, 1),
    "contrast": (0.2, 1.8, 1),
    "saturation": (0, 2, 1),
    "sharpness": (0.1, 1.9, 1),
}
_RANGES = torch.tensor(list(OPERATIONS.values())).T.contiguous()


def flip(images: Tensor, probability: float = 0.5) -> Tensor:
    """Mirror each row horizontally with this probability."""
    return torch.where(broadcast_per_row(_bernoulli(images, probability)), images.flip(3), images)


def shift(images: Tensor, max_pixels: int, reflect: bool = True) -> Tensor:
    """Shift each row by up to `max_pixels` in both axes, padded by reflection or by the values at the edge."""
    offsets = torch.randint(-max_pixels, max_pixels + 1, (2, len(images), 1), device=images.device)

    def source_indices(size: int, offset: Tensor) -> Tensor:
        indices = torch.arange(size, device=images.device) + offset
        if reflect:
            indices = size - 1 - (size - 1 - indices.abs()).abs()
        return indices.clamp(0, size - 1)

    return gather_pixels(
        images, source_indices(images.shape[2], offsets[0]), source_indices(images.shape[3], offsets[1])
    )


def resized_crop(
    images: Tensor,
    area: tuple[float, float] = (0.2, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    flip_probability: float = 0.0,
    size: tuple[int, int] | None = None,
) -> Tensor:
    """Crop a random fraction of the area, with an aspect ratio within `ratio`, resize it to `size`, and flip it."""
    area_fraction = _uniform(images, *area)
    aspect = (_uniform(images, math.log(ratio[0]), math.log(ratio[1])) / 2).exp()
    width, height = (area_fraction.sqrt() * aspect).clamp_max(1), (area_fraction.sqrt() / aspect).clamp_max(1)
    x, y = (1 - width) * _uniform(images, -1, 1), (1 - height) * _uniform(images, -1, 1)
    zero = torch.zeros_like(width)
    signed_width = torch.where(_bernoulli(images, flip_probability), -width, width)
    maps = torch.stack([signed_width, zero, x, zero, height, y], 1).view(-1, 2, 3)
    return warp(images, maps, padding="border", size=size)


def jitter(
    images: Tensor,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.1,
    probability: float = 0.8,
    gray_probability: float = 0.2,
) -> Tensor:
    """Vary the colors by up to these fractions with `probability`; convert to gray with `gray_probability`."""
    is_jittered = _bernoulli(images, probability)

    def draw_factor(max_change: float) -> Tensor:
        return torch.where(is_jittered, _uniform(images, 1 - max_change, 1 + max_change), 1.0)

    hue_change = torch.where(is_jittered, _uniform(images, -hue, hue), 0.0)
    color = torch.where(_bernoulli(images, gray_probability), 0.0, draw_factor(saturation))
    return adjust_color(images, draw_factor(brightness), draw_factor(contrast), color, hue_change)


def invert_bright(images: Tensor, probability: float = 0.1) -> Tensor:
    """Invert values above one half, in each row with this probability."""
    return solarize(images, torch.where(_bernoulli(images, probability), 0.5, 1.0))


def randaugment(images: Tensor, n_operations: int = 2, max_degrees: float = 30.0) -> Tensor:
    """Apply `n_operations` different `OPERATIONS` to each row, each of random strength."""
    if n_operations == 0:
        return images
    n_rows, n_known = len(images), len(OPERATIONS)
    scores = torch.rand(n_rows, n_known, device=images.device)
    is_drawn = scores >= scores.topk(n_operations, 1).values[:, -1:]
    low, high, neutral = _RANGES.to(images.device, non_blocking=True)
    strength = torch.where(is_drawn, low + (high - low) * torch.rand(n_rows, n_known, device=images.device), neutral)
    level = dict(zip(OPERATIONS, strength.unbind(1), strict=True))
    shears = level["shear_right"], level["shear_down"]
    shifts_and_zoom = level["right"], level["down"], torch.ones_like(level["right"])
    size = (images.shape[2], images.shape[3])
    images = warp(images, make_affine_maps(level["degrees"] * max_degrees, *shears, *shifts_and_zoom, size))
    images = posterize(solarize(images, level["solarize"]), level["posterize"])
    images = stretch_or_equalize(images, level["stretch"] > 0, level["equalize"] > 0)
    no_hue_change = torch.zeros_like(level["contrast"])
    images = adjust_color(images, level["brightness"], level["contrast"], level["saturation"], no_hue_change)
    return sharpen(images, level["sharpness"])


def cutout(images: Tensor, fraction: float = 0.5) -> Tensor:
    """Cover a gray square at a random center; its side is this fraction of the height."""
    height, width = images.shape[2:]
    side = torch.full((len(images),), fraction * height, device=images.device)
    return cover_square(images, _uniform(images, 0, height), _uniform(images, 0, width), side)


def randaugment_and_cutout(
    images: Tensor, n_operations: int = 2, max_degrees: float = 30.0, cutout_fraction: float = 0.5
) -> Tensor:
    """Apply RandAugment, then Cutout: the strong augmentation of FixMatch."""
    return cutout(randaugment(images, n_operations, max_degrees), cutout_fraction)


def _uniform(images: Tensor, low: float, high: float) -> Tensor:
    return torch.rand(len(images), device=images.device) * (high - low) + low


def _bernoulli(images: Tensor, probability: float) -> Tensor:
    return torch.rand(len(images), device=images.device) < probability
