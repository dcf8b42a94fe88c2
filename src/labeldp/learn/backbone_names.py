"""The names of backbones, without an import of torch; `backbones` builds the networks."""

_BACKBONES_BY_NDIM = {
    1: ("mlp", "linear"),
    2: ("mf", "ncf"),
    3: ("resnet18", "wrn28", "vgg16", "cnn", "mlp", "linear"),
}


def backbones_for(ndim: int) -> tuple[str, ...]:
    """Return the backbones for rows with `ndim` axes: 1 for columns, 2 for pairs of ids, 3 for images."""
    return _BACKBONES_BY_NDIM[ndim]


def is_backbone(name: str) -> bool:
    """Return whether `name` is the name of a backbone."""
    return any(name in names for names in _BACKBONES_BY_NDIM.values())
