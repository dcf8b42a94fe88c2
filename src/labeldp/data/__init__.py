"""Public features: images, tables, embeddings and pairs of ids, with their augmentations and loaders."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp.data.base import Features as Features
    from labeldp.data.base import choose_device as choose_device
    from labeldp.data.embeddings import Embeddings as Embeddings
    from labeldp.data.images import Images as Images
    from labeldp.data.loaders import load as load
    from labeldp.data.pairs import Pairs as Pairs
    from labeldp.data.ratings import read_ratings as read_ratings
    from labeldp.data.tables import Table as Table

__all__, __getattr__, __dir__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.data",
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
