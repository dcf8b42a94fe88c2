"""labeldp: train models when the labels are the secret."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import exports

if TYPE_CHECKING:
    from labeldp import audit as audit
    from labeldp import data as data
    from labeldp import evaluate as evaluate
    from labeldp import learn as learn
    from labeldp import mechanisms as mechanisms
    from labeldp import recipes as recipes
    from labeldp import representation as representation
    from labeldp import teach as teach
    from labeldp.accounting.calibration import calibrate as calibrate
    from labeldp.accounting.losses import ApproximateLoss as ApproximateLoss
    from labeldp.accounting.losses import GaussianLoss as GaussianLoss
    from labeldp.accounting.losses import PureLoss as PureLoss
    from labeldp.accounting.losses import compose as compose
    from labeldp.accounting.losses import rdp_to_epsilon as rdp_to_epsilon
    from labeldp.core.errors import BudgetExceeded as BudgetExceeded
    from labeldp.core.errors import InputError as InputError
    from labeldp.core.errors import LabelDPError as LabelDPError
    from labeldp.core.errors import LedgerError as LedgerError
    from labeldp.core.errors import PrivacyWarning as PrivacyWarning
    from labeldp.core.errors import ReusedReleaseWarning as ReusedReleaseWarning
    from labeldp.core.guarantee import Budget as Budget
    from labeldp.core.guarantee import Guarantee as Guarantee
    from labeldp.core.label_space import LabelSpace as LabelSpace
    from labeldp.core.unproven import allow_unproven as allow_unproven
    from labeldp.estimators import LabelPrivateClassifier as LabelPrivateClassifier
    from labeldp.mechanisms import BestCandidate as BestCandidate
    from labeldp.mechanisms import ConfidentGNMax as ConfidentGNMax
    from labeldp.mechanisms import DiscreteLaplace as DiscreteLaplace
    from labeldp.mechanisms import GNMax as GNMax
    from labeldp.mechanisms import GroupHistogram as GroupHistogram
    from labeldp.mechanisms import HighestScore as HighestScore
    from labeldp.mechanisms import ImmutableArgmax as ImmutableArgmax
    from labeldp.mechanisms import LargestResiduals as LargestResiduals
    from labeldp.mechanisms import LeastLoss as LeastLoss
    from labeldp.mechanisms import LinearQuery as LinearQuery
    from labeldp.mechanisms import LNMax as LNMax
    from labeldp.mechanisms import LossSum as LossSum
    from labeldp.mechanisms import Mechanism as Mechanism
    from labeldp.mechanisms import NumberQuery as NumberQuery
    from labeldp.mechanisms import OneHotGaussian as OneHotGaussian
    from labeldp.mechanisms import OneHotLaplace as OneHotLaplace
    from labeldp.mechanisms import RandomizedResponse as RandomizedResponse
    from labeldp.mechanisms import RightCount as RightCount
    from labeldp.mechanisms import RRInformative as RRInformative
    from labeldp.mechanisms import RROnBins as RROnBins
    from labeldp.mechanisms import RRTopK as RRTopK
    from labeldp.mechanisms import RRWithPrior as RRWithPrior
    from labeldp.mechanisms import StableVote as StableVote
    from labeldp.mechanisms import UnbiasedBins as UnbiasedBins
    from labeldp.mechanisms import VoteMechanism as VoteMechanism
    from labeldp.regressor import LabelPrivateRegressor as LabelPrivateRegressor
    from labeldp.releases import Release as Release
    from labeldp.search import LabelPrivateSearchCV as LabelPrivateSearchCV
    from labeldp.vault import Identity as Identity
    from labeldp.vault import Ledger as Ledger
    from labeldp.vault import Vault as Vault
    from labeldp.vault import identify as identify

__version__ = "0.1.0"

# Loaded at first use: the command line must answer `--help` without loading Arrow, SciPy and a database.
_HOMES = {
    "accounting.calibration": ["calibrate"],
    "core.errors": [
        "BudgetExceeded",
        "InputError",
        "LabelDPError",
        "LedgerError",
        "PrivacyWarning",
        "ReusedReleaseWarning",
    ],
    "estimators": ["LabelPrivateClassifier"],
    "core.guarantee": ["Budget", "Guarantee"],
    "core.label_space": ["LabelSpace"],
    "accounting.losses": ["ApproximateLoss", "GaussianLoss", "PureLoss", "compose", "rdp_to_epsilon"],
    "mechanisms": [
        "BestCandidate",
        "ConfidentGNMax",
        "DiscreteLaplace",
        "GNMax",
        "GroupHistogram",
        "HighestScore",
        "ImmutableArgmax",
        "LNMax",
        "LargestResiduals",
        "LeastLoss",
        "LinearQuery",
        "LossSum",
        "Mechanism",
        "NumberQuery",
        "OneHotGaussian",
        "OneHotLaplace",
        "RRInformative",
        "RROnBins",
        "RRTopK",
        "RRWithPrior",
        "RandomizedResponse",
        "RightCount",
        "StableVote",
        "UnbiasedBins",
        "VoteMechanism",
    ],
    "regressor": ["LabelPrivateRegressor"],
    "releases": ["Release"],
    "search": ["LabelPrivateSearchCV"],
    "core.unproven": ["allow_unproven"],
    "vault": ["Identity", "Ledger", "Vault", "identify"],
}
_ROOMS = ["audit", "data", "evaluate", "learn", "mechanisms", "recipes", "representation", "teach"]
__all__, __getattr__, _names = exports("labeldp", _HOMES, _ROOMS)  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return [*_names(), "__version__"]
