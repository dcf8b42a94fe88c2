"""Learning without labels: encoders and clusters. Features are public, so it has no privacy cost."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp.representation.clusters import kmeans as kmeans
    from labeldp.representation.contrastive import SimCLR as SimCLR
    from labeldp.representation.momentum import BYOL as BYOL
    from labeldp.representation.momentum import MoCo as MoCo
    from labeldp.representation.restart import train_two_encoders as train_two_encoders
    from labeldp.representation.scan import SCAN as SCAN

__all__, __getattr__, __dir__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.representation",
    {
        "clusters": ["kmeans"],
        "contrastive": ["SimCLR"],
        "momentum": ["BYOL", "MoCo"],
        "restart": ["train_two_encoders"],
        "scan": ["SCAN"],
    },
)
