"""Privacy accounting: losses, calibration, composition, privacy filters and lineage. It reads no label."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp.accounting.calibration import calibrate as calibrate
    from labeldp.accounting.losses import ApproximateLoss as ApproximateLoss
    from labeldp.accounting.losses import GaussianLoss as GaussianLoss
    from labeldp.accounting.losses import PureLoss as PureLoss
    from labeldp.accounting.losses import compose as compose
    from labeldp.accounting.losses import rdp_to_epsilon as rdp_to_epsilon

__all__, __getattr__, __dir__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.accounting",
    {
        "calibration": ["calibrate"],
        "losses": ["ApproximateLoss", "GaussianLoss", "PureLoss", "compose", "rdp_to_epsilon"],
    },
)
