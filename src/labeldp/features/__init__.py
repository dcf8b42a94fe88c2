"""What the learner sees: images, tables, embeddings and pairs of ids, with their augmentations and loaders."""

from labeldp.errors import MissingExtra

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra("Reading features") from None

from labeldp.features.base import Features, choose_device
from labeldp.features.embeddings import Embeddings
from labeldp.features.images import Images
from labeldp.features.loaders import load
from labeldp.features.pairs import Pairs
from labeldp.features.ratings import read_ratings
from labeldp.features.tables import Table

__all__ = ["Embeddings", "Features", "Images", "Pairs", "Table", "choose_device", "load", "read_ratings"]
