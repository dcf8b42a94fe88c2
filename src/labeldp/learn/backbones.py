"""Networks: ResNet-18, WideResNet-28-k and VGG-16 for small images, the CNN of the PATE papers, an MLP, a line.

Those for pairs of ids are in `factors`.
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

_FURTHEST = 1e6  # deviations of a column, beyond which numbers are cut


class Network(nn.Module):
    """Normalises its input, encodes it, and scores classes. What `recipe` says rebuilds it."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, encoder: nn.Module, width: int, recipe: dict[str, Any]) -> None:
        super().__init__()
        self.recipe = recipe
        self.width = width
        shape, classes = recipe["shape"], recipe["classes"]
        channels = (1,) if is_pair(shape) else (shape[0], *(1 for _ in shape[1:]))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))
        self.encoder = encoder
        numbers = recipe.get("numbers")
        if numbers:
            self.head: Any = NumberHead(width, classes, **numbers)
        else:
            self.head = nn.Linear(width, classes)
            if is_pair(shape):
                order_head(self.head)

    @property
    def loss(self) -> str:
        """Which single number suits its distributions, where labels are numbers."""
        return self.head.loss if isinstance(self.head, NumberHead) else "squared"

    def normalise_by(self, mean: Tensor, deviation: Tensor) -> None:
        """Set the moments of the input."""
        self.mean.copy_(mean.reshape(self.mean.shape))
        self.deviation.copy_(deviation.clamp_min(1e-6).reshape(self.deviation.shape))

    def embed(self, x: Tensor) -> Tensor:
        """Return the encoding that the head scores."""
        if not x.is_floating_point():  # ids are no quantities
            return self.encoder(x)
        normal = (x - self.mean) / self.deviation
        return self.encoder(normal.clamp(-_FURTHEST, _FURTHEST) if x.ndim == 2 else normal)  # huge numbers overflow

    def forward(self, x: Tensor) -> Tensor:
        """Return a score (logit) for each class."""
        return self.head(self.embed(x))


_INERTIA, _LEAST_LEFT = 0.05, 0.05  # of the running spread of locations; of the variance that they leave


class NumberHead(nn.Module):
    """Scores for every value of a range, from one linear output: a curve around a location.

    The curve is normal for "squared" loss, Laplace's for "absolute", the law of counts for "poisson". `low` and `high`
    are the ends of the range; `centre` and `deviation` are those of all labels. The output counts in deviations from
    the centre and is divided by the root of the width: squares grow faster than the losses of classes, and the usual
    rates of learning would overshoot. How wide the curve is follows: the variance of
    all labels, less that of the locations. It cannot be learnt from evidence, of which little tells a wide curve around
    far locations from a narrow one around near ones.
    """

    grid: Tensor
    spread: Tensor

    def __init__(
        self, width: int, values: int, low: float, high: float, loss: str, centre: float, deviation: float
    ) -> None:
        super().__init__()
        self.loss, self.out_features = loss, values
        self._centre, self._deviation = centre, deviation
        self.register_buffer("grid", torch.linspace(low, high, values))
        self.line = nn.Linear(width, 1)
        nn.init.zeros_(self.line.weight)
        nn.init.zeros_(self.line.bias)
        self.register_buffer("spread", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return a score (logit) for each value."""
        at = self.line(x).float() / self.line.in_features**0.5
        if self.loss == "poisson":
            rate = math.log(max(self._centre, 0.1)) + at * self._deviation / max(self._centre, 0.1)
            return self.grid * rate - torch.lgamma(self.grid + 1)
        if self.training and len(at) > 1:
            self.spread.lerp_(at.detach().var(), _INERTIA)
        left = (1 - self.spread).clamp_min(_LEAST_LEFT)
        away = (self.grid - self._centre) / self._deviation - at
        return -away.abs() * (2 / left).sqrt() if self.loss == "absolute" else -(away**2) / (2 * left)


class Average(nn.Module):
    """The mean of several networks' probabilities, as logits."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    @property
    def recipe(self) -> dict[str, Any]:
        """What rebuilds it."""
        return {"average": [network.recipe for network in self.networks]}

    def forward(self, x: Tensor) -> Tensor:
        """Return log-probabilities."""
        chances = torch.stack([torch.softmax(network(x).float(), dim=1) for network in self.networks])
        return chances.mean(dim=0).clamp_min(1e-12).log()


class Beside(nn.Module):
    """Several encoders: their encodings side by side, each divided by its usual length, so that all weigh the same.

    A learner that starts from it starts from the first.
    """

    lengths: Tensor

    def __init__(self, networks: Sequence[Network], lengths: Sequence[float] | None = None) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.register_buffer("lengths", torch.ones(len(networks)) if lengths is None else torch.tensor(lengths))

    @property
    def recipe(self) -> dict[str, Any]:
        """What rebuilds it."""
        return {"beside": [network.recipe for network in self.networks]}

    def embed(self, x: Tensor) -> Tensor:
        """Return all encodings."""
        each = zip(self.networks, self.lengths, strict=True)
        return torch.cat([network.embed(x).float() / length for network, length in each], dim=1)  # type: ignore[operator]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(inside, outside, stride), nn.BatchNorm2d(outside)
        self.conv2, self.norm2 = _conv(outside, outside), nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(_conv(inside, outside, stride, 1), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class WideBlock(nn.Module):
    """Normalisation before convolution (Zagoruyko and Komodakis 2016), with FixMatch's leaky activations."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inside), _conv(inside, outside, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(outside), _conv(outside, outside)
        self.shortcut = _conv(inside, outside, stride, 1) if inside != outside else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        y = F.leaky_relu(self.norm1(x), 0.1)
        short = x if self.shortcut is None else self.shortcut(y)
        return self.conv2(F.leaky_relu(self.norm2(self.conv1(y)), 0.1)) + short


def _conv(inside: int, outside: int, stride: int = 1, size: int = 3) -> nn.Conv2d:
    conv = nn.Conv2d(inside, outside, size, stride, size // 2, bias=False)
    # As the papers' rates of learning assume: torch's own start is smaller, and so learns faster at the same rate.
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _pooled(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def resnet18(shape: Sequence[int], width: int = 64) -> tuple[nn.Module, int]:
    """ResNet-18 with a 3x3 stem and no pooling before the blocks."""
    layers: list[nn.Module] = [_conv(shape[0], width), nn.BatchNorm2d(width), nn.ReLU()]
    inside = width
    for stage in range(4):
        outside = width * 2**stage
        layers += [BasicBlock(inside, outside, 1 if stage == 0 else 2), BasicBlock(outside, outside, 1)]
        inside = outside
    return _pooled(*layers), inside


def wrn28(shape: Sequence[int], k: int = 2) -> tuple[nn.Module, int]:
    """WideResNet-28-k."""
    layers: list[nn.Module] = [_conv(shape[0], 16)]
    inside = 16
    for stage in range(3):
        outside = 16 * k * 2**stage
        layers += [WideBlock(inside if i == 0 else outside, outside, 2 if stage and i == 0 else 1) for i in range(4)]
        inside = outside
    return _pooled(*layers, nn.BatchNorm2d(inside), nn.LeakyReLU(0.1)), inside


def vgg16(shape: Sequence[int]) -> tuple[nn.Module, int]:
    """VGG-16 with batch normalisation and one linear layer; small images are pooled as often as they can be."""
    layers: list[nn.Module] = []
    inside, side = shape[0], min(shape[1:])
    for widths in ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)):
        for outside in widths:
            layers += [_conv(inside, outside), nn.BatchNorm2d(outside), nn.ReLU()]
            inside = outside
        if side >= 2:
            layers.append(nn.MaxPool2d(2))
            side //= 2
    return _pooled(*layers), inside


def cnn(shape: Sequence[int], width: int = 64) -> tuple[nn.Module, int]:
    """The two-convolution network of the PATE papers, with batch normalisation in the place of theirs."""
    layers: list[nn.Module] = []
    inside, (height, across) = shape[0], shape[1:]
    for _ in range(2):
        layers += [
            nn.Conv2d(inside, width, 5, padding=2, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        inside, height, across = width, height // 2, across // 2
    layers.append(nn.Flatten())
    for before, after in ((width * height * across, 6 * width), (6 * width, 3 * width)):
        layers += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers), 3 * width


def mlp(shape: Sequence[int], width: int = 256, depth: int = 2) -> tuple[nn.Module, int]:
    """Fully connected layers with batch normalisation."""
    layers: list[nn.Module] = [nn.Flatten()]
    inside = _flat(shape)
    for _ in range(depth):
        layers += [nn.Linear(inside, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
        inside = width
    return nn.Sequential(*layers), width


def linear(shape: Sequence[int]) -> tuple[nn.Module, int]:
    """Nothing but the head: a linear model."""
    return nn.Flatten(), _flat(shape)


def is_pair(shape: Sequence[int]) -> bool:
    """Whether rows of this shape are ids of a person and an item."""
    return len(shape) == 2


def _flat(shape: Sequence[int]) -> int:
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
    name: str, shape: Sequence[int], classes: int, numbers: dict[str, Any] | None = None, **options: Any
) -> Network:
    """Build a network by name for rows of `shape`; with `numbers`, the settings of a `NumberHead`, one for numbers."""
    if name not in BACKBONES:
        raise InputError(f"There is no backbone {name!r}: choose one of {', '.join(BACKBONES)}.")
    if name not in backbones_for(len(shape)):
        what = "pairs of ids" if name in backbones_for(2) else "images" if not is_pair(shape) else "columns or images"
        fitting = " or ".join(backbones_for(len(shape))[:2])
        raise InputError(f"The backbone {name!r} needs {what}; these rows have shape {tuple(shape)}: choose {fitting}.")
    encoder, width = BACKBONES[name](shape, **options)
    recipe = {"name": name, "shape": list(shape), "classes": classes, "options": options}
    recipe |= {"numbers": numbers} if numbers else {}
    return Network(encoder, width, recipe)


def rebuild(recipe: dict[str, Any]) -> nn.Module:
    """Build a network again from its recipe, without its weights."""
    if "average" in recipe:
        return Average([rebuild(each) for each in recipe["average"]])
    if "beside" in recipe:
        return Beside([build_again(each) for each in recipe["beside"]])
    return build_again(recipe)


def build_again(recipe: dict[str, Any]) -> Network:
    """Build a network of one piece from its recipe."""
    network = build(recipe["name"], recipe["shape"], recipe["classes"], recipe.get("numbers"), **recipe["options"])
    network.recipe = dict(recipe)
    return network


def takes_mirrors(network: nn.Module) -> bool:
    """Whether a network was trained on pictures whose mirror images have the same label."""
    if isinstance(network, Average):
        return all(takes_mirrors(each) for each in network.networks)
    return isinstance(network, Network) and bool(network.recipe.get("flip"))
