"""Image transforms with given parameters, one value for each row of the batch.

Batches are float32 in [0, 1] of shape (rows, channels, height, width) with 1 or 3 channels. A neutral parameter returns
the row exactly. All operations are elementwise on whole batches: they have no loop over rows, no synchronization with
the device, nothing that torch.compile cannot trace, and no matrix product, which autocast would round.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

_LUMA = (0.299, 0.587, 0.114)
_YIQ = torch.tensor([_LUMA, (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112)], dtype=torch.float64)
_QUARTER_TURN = torch.tensor([[0.0, 0, 0], [0, 0, -1], [0, 1, 0]], dtype=torch.float64)
# A color is its luma plus its chroma. The first map returns the chroma, the second rotates it by a quarter turn.
_CHROMA = (torch.eye(3, dtype=torch.float64) - _YIQ[0]).float()
_ROTATED_CHROMA = (torch.linalg.solve(_YIQ, _QUARTER_TURN) @ _YIQ).float()


def broadcast_per_row(parameter: Tensor) -> Tensor:
    """Reshape one value for each row so that it broadcasts over a batch."""
    return parameter.view(-1, 1, 1, 1)


def gather_pixels(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Gather pixels: `down` (rows, height) and `right` (rows, width) are the source of each line and column."""
    row_ids = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[row_ids, down[:, :, None], right[:, None, :]].permute(0, 3, 1, 2)


def make_affine_maps(
    degrees: Tensor,
    shear_right: Tensor,
    shear_down: Tensor,
    right: Tensor,
    down: Tensor,
    zoom: Tensor,
    size: tuple[int, int],
) -> Tensor:
    """Return maps (rows, 2, 3) for `warp` that shear, rotate anticlockwise, zoom and then shift the picture.

    `right` and `down` are fractions of the width and height. A map gives the source of each output pixel, so it is the
    inverse of the effect on the picture, in coordinates from -1 to 1.
    """
    aspect = size[1] / size[0]
    angle = degrees * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    scale = 1 / (zoom * (1 - shear_right * shear_down))
    xx, xy = scale * (cos - shear_right * sin), scale * (-sin - shear_right * cos) / aspect
    yx, yy = scale * (sin - shear_down * cos) * aspect, scale * (cos + shear_down * sin)
    x, y = -2 * (xx * right + xy * down), -2 * (yx * right + yy * down)
    return torch.stack([xx, xy, x, yx, yy, y], 1).view(-1, 2, 3)


def warp(images: Tensor, maps: Tensor, padding: str = "zeros", size: tuple[int, int] | None = None) -> Tensor:
    """Sample each output pixel bilinearly at the position that `maps` (rows, 2, 3) gives, for an output of `size`."""
    height, width = size or images.shape[2:]
    x = ((torch.arange(width, device=images.device) * 2 + 1) / width - 1).view(1, 1, width, 1)
    y = ((torch.arange(height, device=images.device) * 2 + 1) / height - 1).view(1, height, 1, 1)
    across, along, offset = maps[:, None, None].unbind(-1)
    grid = across * x + along * y + offset
    warped = functional.grid_sample(images, grid, mode="bilinear", padding_mode=padding, align_corners=False)
    if warped.shape != images.shape:
        return warped
    is_identity = (maps == torch.eye(2, 3, device=maps.device)).flatten(1).all(1)
    return torch.where(broadcast_per_row(is_identity), images, warped)


def adjust_color(images: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor) -> Tensor:
    """Change brightness, contrast and saturation by factors, and rotate the hue (1 is a full turn), in one matrix.

    Contrast is relative to the mean luma of the picture, which neither hue nor saturation changes. So all four are one
    linear map of the color and one offset. For one channel, saturation and hue are ignored.
    """
    gain = broadcast_per_row(brightness * contrast)
    means = images.mean((2, 3))
    if images.shape[1] == 1:
        luma, mixed = means[:, 0], images
    else:
        luma = means[:, 0] * _LUMA[0] + means[:, 1] * _LUMA[1] + means[:, 2] * _LUMA[2]
        angle = 2 * math.pi * hue
        chroma_weight, rotated_weight = saturation * angle.cos() - 1, saturation * angle.sin()
        # Copies of nine numbers without synchronization. The change is zero for neutral values: the picture is exact.
        chroma, rotated_chroma = (m.to(images.device, non_blocking=True) for m in (_CHROMA, _ROTATED_CHROMA))
        change = (chroma_weight.view(-1, 1, 1) * chroma + rotated_weight.view(-1, 1, 1) * rotated_chroma)[
            ..., None, None
        ]
        red, green, blue = (images[:, channel, None] for channel in range(3))
        mixed = images + (change[:, :, 0] * red + change[:, :, 1] * green + change[:, :, 2] * blue)
    return (mixed * gain + broadcast_per_row(brightness * (1 - contrast) * luma)).clamp(0, 1)


def sharpen(images: Tensor, factor: Tensor) -> Tensor:
    """Blur (factor below 1) or sharpen (above 1): the factor is the weight of the picture against a blurred copy."""
    tall = torch.cat([images[:, :, :1], images, images[:, :, -1:]], 2)
    lines = tall[:, :, :-2] + images + tall[:, :, 2:]
    wide = torch.cat([lines[..., :1], lines, lines[..., -1:]], 3)
    blurred = (wide[..., :-2] + lines + wide[..., 2:]) / 9
    return (images + broadcast_per_row(factor - 1) * (images - blurred)).clamp(0, 1)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert values above the threshold; 1 is neutral."""
    return torch.where(images > broadcast_per_row(threshold), 1 - images, images)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` of each 8-bit value; 8 is neutral."""
    step = broadcast_per_row(torch.exp2(8 - bits.floor()))
    quantized = (images * 255 + 0.01).div(step).floor() * step / 255  # 0.01 protects 8-bit values from rounding errors
    return torch.where(broadcast_per_row(bits < 8), quantized, images)


def stretch_or_equalize(images: Tensor, stretch: Tensor, equalize: Tensor) -> Tensor:
    """Stretch each channel of some rows over [0, 1], linearly (`stretch`) or to nearly uniform values (`equalize`).

    The latter approximates histogram equalization by the normal distribution function with the mean and deviation of
    the channel, which needs no histogram.
    """
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    mean, square = images.mean((2, 3), keepdim=True), images.square().mean((2, 3), keepdim=True)
    scale = (2 * (square - mean.square()).clamp_min(1e-6)).rsqrt()
    ranks, lowest, highest = (torch.erf((value - mean) * scale) for value in (images, low, high))
    even = (images - low) / (high - low).clamp_min(1e-6)
    equal = (ranks - lowest) / (highest - lowest).clamp_min(1e-6)
    is_constant = high - low < 1e-3  # a constant channel is not stretched
    varied = torch.where(broadcast_per_row(equalize), equal, even).clamp(0, 1)
    return torch.where(broadcast_per_row(equalize | stretch) & ~is_constant, varied, images)


def cover_square(images: Tensor, down: Tensor, right: Tensor, side: Tensor, fill: float = 0.5) -> Tensor:
    """Fill a square of `side` pixels with its center at (down, right), in pixels; it may extend beyond the edge."""
    y = torch.arange(images.shape[2], device=images.device) + 0.5
    x = torch.arange(images.shape[3], device=images.device) + 0.5
    row_mask = (y - down[:, None]).abs() < side[:, None] / 2
    column_mask = (x - right[:, None]).abs() < side[:, None] / 2
    return torch.where((row_mask[:, :, None] & column_mask[:, None, :])[:, None], fill, images)
