"""labeldp: train models when the labels are the secret."""

from labeldp.calibration import calibrate
from labeldp.errors import BudgetExceeded, InputError, LabelDPError, LedgerError
from labeldp.guarantees import Budget, Guarantee
from labeldp.labels import LabelSpace
from labeldp.losses import ApproximateLoss, GaussianLoss, PureLoss, compose, rdp_to_epsilon
from labeldp.mechanisms import (
    GroupHistogram,
    LinearQuery,
    Mechanism,
    OneHotGaussian,
    OneHotLaplace,
    RandomizedResponse,
    RRTopK,
    RRWithPrior,
)
from labeldp.releases import Release
from labeldp.vault import Identity, Ledger, Vault, identify

__version__ = "0.1.0"

__all__ = [
    "ApproximateLoss",
    "Budget",
    "BudgetExceeded",
    "GaussianLoss",
    "GroupHistogram",
    "Guarantee",
    "Identity",
    "InputError",
    "LabelDPError",
    "LabelSpace",
    "Ledger",
    "LedgerError",
    "LinearQuery",
    "Mechanism",
    "OneHotGaussian",
    "OneHotLaplace",
    "PureLoss",
    "RRTopK",
    "RRWithPrior",
    "RandomizedResponse",
    "Release",
    "Vault",
    "calibrate",
    "compose",
    "identify",
    "rdp_to_epsilon",
]
