"""Label-free learning: encoders and clusters. Features are public, so all of this is free of charge."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import exports

if TYPE_CHECKING:
    from labeldp.represent.clusters import kmeans as kmeans
    from labeldp.represent.contrastive import SimCLR as SimCLR
    from labeldp.represent.momentum import BYOL as BYOL
    from labeldp.represent.momentum import MoCo as MoCo
    from labeldp.represent.restart import two_encoders as two_encoders
    from labeldp.represent.scan import SCAN as SCAN

__all__, __getattr__, __dir__ = exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.represent",
    {
        "clusters": ["kmeans"],
        "contrastive": ["SimCLR"],
        "momentum": ["BYOL", "MoCo"],
        "restart": ["two_encoders"],
        "scan": ["SCAN"],
    },
)
