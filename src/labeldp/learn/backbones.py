"""Networks: ResNet-18, WideResNet-28-k and VGG-16 for small images, the CNN of the PATE papers, an MLP, a linear model.

The networks for pairs of ids are in `factors`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labeldp.core.errors import InputError
from labeldp.learn.backbone_names import backbones_for
from labeldp.learn.factors import mf, ncf, order_head

_MAX_DEVIATIONS = 1e6  # standard deviations of a column at which standardized values are clipped


class Network(nn.Module):
    """A network that normalizes its input, encodes it, and scores classes; `rebuild(config)` makes it again."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, encoder: nn.Module, width: int, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        self.width = width
        shape, n_classes = config["shape"], config["classes"]
        channels = (1,) if is_pair_shape(shape) else (shape[0], *(1 for _ in shape[1:]))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))
        self.encoder = encoder
        head_config = config.get("numbers")
        if head_config:
            self.head: Any = RegressionHead(width, n_classes, **head_config)
        else:
            self.head = nn.Linear(width, n_classes)
            if is_pair_shape(shape):
                order_head(self.head)

    @property
    def loss(self) -> str:
        """The regression loss of a `RegressionHead`; "squared" for class scores."""
        return self.head.loss if isinstance(self.head, RegressionHead) else "squared"

    def set_normalization(self, mean: Tensor, deviation: Tensor) -> None:
        """Set the moments of the input."""
        self.mean.copy_(mean.reshape(self.mean.shape))
        self.deviation.copy_(deviation.clamp_min(1e-6).reshape(self.deviation.shape))

    def embed(self, x: Tensor) -> Tensor:
        """Return the encoding that the head scores."""
        if not x.is_floating_point():  # ids are no quantities
            return self.encoder(x)
        normal = (x - self.mean) / self.deviation
        # Without a limit, huge values of a column would overflow.
        return self.encoder(normal.clamp(-_MAX_DEVIATIONS, _MAX_DEVIATIONS) if x.ndim == 2 else normal)

    def forward(self, x: Tensor) -> Tensor:
        """Return a score (logit) for each class."""
        return self.head(self.embed(x))


_SPREAD_MOMENTUM = 0.05  # of the running variance of locations
_MIN_RESIDUAL_VARIANCE = 0.05  # least residual variance, as a share of the variance of all labels


class RegressionHead(nn.Module):
    """A score for every value of a range, from one linear output: the log-density around a location.

    The density is normal for "squared" loss, Laplace for "absolute" and Poisson for "poisson". The location is in
    standard deviations from the center, divided by the square root of the input width. Without this factor, usual
    learning rates would overshoot, because squared errors grow faster than classification losses.

    The residual variance is the variance of all labels less that of the locations. It is not a learned parameter:
    noisy evidence hardly distinguishes a wide density around distant locations from a narrow one around near locations.

    Args:
        width: The columns of the encoding.
        n_values: The number of values of the range.
        low: The smallest value.
        high: The largest value.
        loss: "squared", "absolute" or "poisson".
        center: The mean of all labels.
        deviation: The standard deviation of all labels.
    """

    grid: Tensor
    location_variance: Tensor

    def __init__(
        self, width: int, n_values: int, low: float, high: float, loss: str, center: float, deviation: float
    ) -> None:
        super().__init__()
        self.loss, self.out_features = loss, n_values
        self._center, self._deviation = center, deviation
        self.register_buffer("grid", torch.linspace(low, high, n_values))
        self.linear_model = nn.Linear(width, 1)
        nn.init.zeros_(self.linear_model.weight)
        nn.init.zeros_(self.linear_model.bias)
        self.register_buffer("location_variance", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return a score (logit) for each value."""
        location = self.linear_model(x).float() / self.linear_model.in_features**0.5
        if self.loss == "poisson":
            rate = math.log(max(self._center, 0.1)) + location * self._deviation / max(self._center, 0.1)
            return self.grid * rate - torch.lgamma(self.grid + 1)
        if self.training and len(location) > 1:
            self.location_variance.lerp_(location.detach().var(), _SPREAD_MOMENTUM)
        residual_variance = (1 - self.location_variance).clamp_min(_MIN_RESIDUAL_VARIANCE)
        residual = (self.grid - self._center) / self._deviation - location
        return (
            -residual.abs() * (2 / residual_variance).sqrt()
            if self.loss == "absolute"
            else -(residual**2) / (2 * residual_variance)
        )


class EnsembleNetwork(nn.Module):
    """The logarithm of the mean probabilities of several networks."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    @property
    def config(self) -> dict[str, Any]:
        """What rebuilds it."""
        return {"average": [network.config for network in self.networks]}

    def forward(self, x: Tensor) -> Tensor:
        """Return log-probabilities."""
        probabilities = torch.stack([torch.softmax(network(x).float(), dim=1) for network in self.networks])
        return probabilities.mean(dim=0).clamp_min(1e-12).log()


class ConcatEncoder(nn.Module):
    """The concatenated encodings of several encoders, each divided by its RMS norm so that all have the same scale.

    A learner that starts from such an encoder starts from its first part.
    """

    lengths: Tensor

    def __init__(self, networks: Sequence[Network], lengths: Sequence[float] | None = None) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.register_buffer("lengths", torch.ones(len(networks)) if lengths is None else torch.tensor(lengths))

    @property
    def config(self) -> dict[str, Any]:
        """What rebuilds it."""
        return {"beside": [network.config for network in self.networks]}

    def embed(self, x: Tensor) -> Tensor:
        """Return the concatenated encodings."""
        each = zip(self.networks, self.lengths, strict=True)
        return torch.cat([network.embed(x).float() / length for network, length in each], dim=1)  # type: ignore[operator]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(in_channels, out_channels, stride), nn.BatchNorm2d(out_channels)
        self.conv2, self.norm2 = _conv(out_channels, out_channels), nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(_conv(in_channels, out_channels, stride, 1), nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class WideBlock(nn.Module):
    """Normalization before convolution (Zagoruyko and Komodakis 2016), with FixMatch's leaky activations."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(in_channels), _conv(in_channels, out_channels, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(out_channels), _conv(out_channels, out_channels)
        self.shortcut = _conv(in_channels, out_channels, stride, 1) if in_channels != out_channels else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.leaky_relu(self.norm1(x), 0.1)
        shortcut = x if self.shortcut is None else self.shortcut(y)
        return self.conv2(F.leaky_relu(self.norm2(self.conv1(y)), 0.1)) + shortcut


def _conv(in_channels: int, out_channels: int, stride: int = 1, kernel_size: int = 3) -> nn.Conv2d:
    conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride, kernel_size // 2, bias=False)
    # The learning rates of the papers assume this initialization; torch's default weights are smaller.
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _with_pooling(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def resnet18(shape: Sequence[int], width: int = 64) -> tuple[nn.Module, int]:
    """ResNet-18 with a 3x3 stem and no pooling before the blocks."""
    layers: list[nn.Module] = [_conv(shape[0], width), nn.BatchNorm2d(width), nn.ReLU()]
    in_channels = width
    for stage in range(4):
        out_channels = width * 2**stage
        layers += [
            BasicBlock(in_channels, out_channels, 1 if stage == 0 else 2),
            BasicBlock(out_channels, out_channels, 1),
        ]
        in_channels = out_channels
    return _with_pooling(*layers), in_channels


def wrn28(shape: Sequence[int], k: int = 2) -> tuple[nn.Module, int]:
    """WideResNet-28-k."""
    layers: list[nn.Module] = [_conv(shape[0], 16)]
    in_channels = 16
    for stage in range(3):
        out_channels = 16 * k * 2**stage
        layers += [
            WideBlock(in_channels if i == 0 else out_channels, out_channels, 2 if stage and i == 0 else 1)
            for i in range(4)
        ]
        in_channels = out_channels
    return _with_pooling(*layers, nn.BatchNorm2d(in_channels), nn.LeakyReLU(0.1)), in_channels


def vgg16(shape: Sequence[int]) -> tuple[nn.Module, int]:
    """VGG-16 with batch normalization and one linear layer; pooling stops when a side is 1 pixel."""
    layers: list[nn.Module] = []
    in_channels, side = shape[0], min(shape[1:])
    for widths in ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)):
        for out_channels in widths:
            layers += [_conv(in_channels, out_channels), nn.BatchNorm2d(out_channels), nn.ReLU()]
            in_channels = out_channels
        if side >= 2:
            layers.append(nn.MaxPool2d(2))
            side //= 2
    return _with_pooling(*layers), in_channels


def cnn(shape: Sequence[int], width: int = 64) -> tuple[nn.Module, int]:
    """The network of the PATE papers with two convolutions; batch normalization replaces their normalization."""
    layers: list[nn.Module] = []
    in_channels, (height, image_width) = shape[0], shape[1:]
    for _ in range(2):
        layers += [
            nn.Conv2d(in_channels, width, 5, padding=2, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        in_channels, height, image_width = width, height // 2, image_width // 2
    layers.append(nn.Flatten())
    for in_features, out_features in ((width * height * image_width, 6 * width), (6 * width, 3 * width)):
        layers += [nn.Linear(in_features, out_features, bias=False), nn.BatchNorm1d(out_features), nn.ReLU()]
    return nn.Sequential(*layers), 3 * width


def mlp(shape: Sequence[int], width: int = 256, depth: int = 2) -> tuple[nn.Module, int]:
    """Fully connected layers with batch normalization."""
    layers: list[nn.Module] = [nn.Flatten()]
    in_features = _n_inputs(shape)
    for _ in range(depth):
        layers += [nn.Linear(in_features, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
        in_features = width
    return nn.Sequential(*layers), width


def linear(shape: Sequence[int]) -> tuple[nn.Module, int]:
    """A linear model: the input itself is the encoding."""
    return nn.Flatten(), _n_inputs(shape)


def is_pair_shape(shape: Sequence[int]) -> bool:
    """Whether rows of this shape are ids of a person and an item."""
    return len(shape) == 2


def _n_inputs(shape: Sequence[int]) -> int:
    return int(torch.Size(shape).numel())


BACKBONES: dict[str, Callable[..., tuple[nn.Module, int]]] = {
    "resnet18": resnet18,
    "wrn28": wrn28,
    "vgg16": vgg16,
    "cnn": cnn,
    "mlp": mlp,
    "linear": linear,
    "mf": mf,
    "ncf": ncf,
}


def build(
    name: str, shape: Sequence[int], n_classes: int, head_config: dict[str, Any] | None = None, **options: Any
) -> Network:
    """Build a network by name.

    Args:
        name: The name of a backbone.
        shape: The shape of a row.
        n_classes: The number of classes, or of values of a range.
        head_config: The arguments of a `RegressionHead` for numbers; None for classes.
        **options: Arguments of the backbone, `width=16` for example.

    Returns:
        The network, with initial weights.

    Raises:
        InputError: The name is unknown, or the backbone is not for rows of this shape.
    """
    if name not in BACKBONES:
        raise InputError(f"There is no backbone {name!r}: choose one of {', '.join(BACKBONES)}.")
    if name not in backbones_for(len(shape)):
        required_rows = (
            "pairs of ids"
            if name in backbones_for(2)
            else "images"
            if not is_pair_shape(shape)
            else "columns or images"
        )
        suggestions = " or ".join(backbones_for(len(shape))[:2])
        raise InputError(
            f"The backbone {name!r} needs {required_rows}; these rows have shape {tuple(shape)}: choose {suggestions}."
        )
    encoder, width = BACKBONES[name](shape, **options)
    config = {"name": name, "shape": list(shape), "classes": n_classes, "options": options}
    config |= {"numbers": head_config} if head_config else {}
    return Network(encoder, width, config)


def rebuild(config: dict[str, Any]) -> nn.Module:
    """Build a network from its `config`, without its weights."""
    if "average" in config:
        return EnsembleNetwork([rebuild(each) for each in config["average"]])
    if "beside" in config:
        return ConcatEncoder([rebuild_single(each) for each in config["beside"]])
    return rebuild_single(config)


def rebuild_single(config: dict[str, Any]) -> Network:
    """Build a single `Network` from its `config`."""
    network = build(config["name"], config["shape"], config["classes"], config.get("numbers"), **config["options"])
    network.config = dict(config)
    return network


def is_flip_invariant(network: nn.Module) -> bool:
    """Return whether a network was trained on images whose mirror images have the same label."""
    if isinstance(network, EnsembleNetwork):
        return all(is_flip_invariant(each) for each in network.networks)
    return isinstance(network, Network) and bool(network.config.get("flip"))
