"""What the learner sees: images, tables, embeddings and pairs of ids, with their augmentations and loaders."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import exports

if TYPE_CHECKING:
    from labeldp.features.base import Features as Features
    from labeldp.features.base import choose_device as choose_device
    from labeldp.features.embeddings import Embeddings as Embeddings
    from labeldp.features.images import Images as Images
    from labeldp.features.loaders import load as load
    from labeldp.features.pairs import Pairs as Pairs
    from labeldp.features.ratings import read_ratings as read_ratings
    from labeldp.features.tables import Table as Table

__all__, __getattr__, __dir__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.features",
    {
        "base": ["Features", "choose_device"],
        "embeddings": ["Embeddings"],
        "images": ["Images"],
        "loaders": ["load"],
        "pairs": ["Pairs"],
        "ratings": ["read_ratings"],
        "tables": ["Table"],
    },
)
