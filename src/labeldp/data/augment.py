"""Random image augmentations on whole batches, each row by its own draw from torch's generator on its device.

Batches are as in `transforms`. Settings that ask for nothing return the batch exactly.
"""

import math

import torch
from torch import Tensor

from labeldp.data.transforms import (
    affine,
    cover,
    each,
    posterize,
    recolour,
    sharpen,
    solarize,
    spread,
    take,
    warp,
)

# The operations of `randaugment`: lowest and highest value of what they draw, and the value that changes nothing.
# They are applied in this order, whichever are drawn: then one warp and one colour matrix serve all of a kind.
OPERATIONS: dict[str, tuple[float, float, float]] = {
    "nothing": (0, 0, 0),
    "degrees": (-1, 1, 0),  # times the largest angle asked for
    "shear_right": (-0.3, 0.3, 0),
    "shear_down": (-0.3, 0.3, 0),
    "right": (-0.3, 0.3, 0),
    "down": (-0.3, 0.3, 0),
    "solarize": (0, 1, 1),  # before the colours: inverting what those saturate leaves confetti
    "posterize": (4, 8, 8),
    "stretch": (1, 1, 0),
    "equalize": (1, 1, 0),
    "brightness": (0.2, 1.8, 1),
    "contrast": (0.2, 1.8, 1),
    "saturation": (0, 2, 1),
    "sharpness": (0.1, 1.9, 1),
}
_RANGES = torch.tensor(list(OPERATIONS.values())).T.contiguous()


def flip(images: Tensor, chance: float = 0.5) -> Tensor:
    """Mirror left and right, each row with this chance."""
    return torch.where(each(_coin(images, chance)), images.flip(3), images)


def shift(images: Tensor, most: int, reflect: bool = True) -> Tensor:
    """Move each row by up to `most` pixels each way: a crop of the picture padded by reflection or by its edge."""
    offsets = torch.randint(-most, most + 1, (2, len(images), 1), device=images.device)

    def places(size: int, offset: Tensor) -> Tensor:
        wanted = torch.arange(size, device=images.device) + offset
        if reflect:
            wanted = size - 1 - (size - 1 - wanted.abs()).abs()
        return wanted.clamp(0, size - 1)

    return take(images, places(images.shape[2], offsets[0]), places(images.shape[3], offsets[1]))


def resized_crop(
    images: Tensor,
    area: tuple[float, float] = (0.2, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    flip_chance: float = 0.0,
    size: tuple[int, int] | None = None,
) -> Tensor:
    """Cut out a random share of the area, width to height within `ratio`, zoom it to a size; flip on the way."""
    share = _between(images, *area)
    shape = (_between(images, math.log(ratio[0]), math.log(ratio[1])) / 2).exp()
    width, height = (share.sqrt() * shape).clamp_max(1), (share.sqrt() / shape).clamp_max(1)
    x, y = (1 - width) * _between(images, -1, 1), (1 - height) * _between(images, -1, 1)
    zero = torch.zeros_like(width)
    across = torch.where(_coin(images, flip_chance), -width, width)
    maps = torch.stack([across, zero, x, zero, height, y], 1).view(-1, 2, 3)
    return warp(images, maps, padding="border", size=size)


def jitter(
    images: Tensor,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.1,
    chance: float = 0.8,
    gray_chance: float = 0.2,
) -> Tensor:
    """Vary the colours by up to these shares with one chance, and take all colour away with another."""
    jittered = _coin(images, chance)

    def factor(most: float) -> Tensor:
        return torch.where(jittered, _between(images, 1 - most, 1 + most), 1.0)

    turn = torch.where(jittered, _between(images, -hue, hue), 0.0)
    colour = torch.where(_coin(images, gray_chance), 0.0, factor(saturation))
    return recolour(images, factor(brightness), factor(contrast), colour, turn)


def invert_bright(images: Tensor, chance: float = 0.1) -> Tensor:
    """Invert the brighter half of all values, each row with this chance."""
    return solarize(images, torch.where(_coin(images, chance), 0.5, 1.0))


def randaugment(images: Tensor, operations: int = 2, degrees: float = 30.0) -> Tensor:
    """Apply so many of `OPERATIONS` to each row, all different, each as strongly as it happens to be drawn."""
    if operations == 0:
        return images
    rows, known = len(images), len(OPERATIONS)
    scores = torch.rand(rows, known, device=images.device)
    drawn = scores >= scores.topk(operations, 1).values[:, -1:]
    low, high, neutral = _RANGES.to(images.device, non_blocking=True)
    strength = torch.where(drawn, low + (high - low) * torch.rand(rows, known, device=images.device), neutral)
    level = dict(zip(OPERATIONS, strength.unbind(1), strict=True))
    shears = level["shear_right"], level["shear_down"]
    moves = level["right"], level["down"], torch.ones_like(level["right"])
    size = (images.shape[2], images.shape[3])
    images = warp(images, affine(level["degrees"] * degrees, *shears, *moves, size))
    images = posterize(solarize(images, level["solarize"]), level["posterize"])
    images = spread(images, level["stretch"] > 0, level["equalize"] > 0)
    unturned = torch.zeros_like(level["contrast"])
    images = recolour(images, level["brightness"], level["contrast"], level["saturation"], unturned)
    return sharpen(images, level["sharpness"])


def cutout(images: Tensor, share: float = 0.5) -> Tensor:
    """Cover a gray square, its side this share of the height, its centre anywhere in the picture."""
    height, width = images.shape[2:]
    side = torch.full((len(images),), share * height, device=images.device)
    return cover(images, _between(images, 0, height), _between(images, 0, width), side)


def strong(images: Tensor, operations: int = 2, degrees: float = 30.0, cutout_share: float = 0.5) -> Tensor:
    """RandAugment, then Cutout: the strong augmentation of FixMatch."""
    return cutout(randaugment(images, operations, degrees), cutout_share)


def _between(images: Tensor, low: float, high: float) -> Tensor:
    return torch.rand(len(images), device=images.device) * (high - low) + low


def _coin(images: Tensor, chance: float) -> Tensor:
    return torch.rand(len(images), device=images.device) < chance
