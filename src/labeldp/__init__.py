"""labeldp: train models when the labels are the secret."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp import accounting as accounting
    from labeldp import audit as audit
    from labeldp import data as data
    from labeldp import evaluate as evaluate
    from labeldp import learn as learn
    from labeldp import mechanisms as mechanisms
    from labeldp import privacy as privacy
    from labeldp import recipes as recipes
    from labeldp import releases as releases
    from labeldp import representation as representation
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
    from labeldp.estimators import LabelPrivateRegressor as LabelPrivateRegressor
    from labeldp.estimators import LabelPrivateSearchCV as LabelPrivateSearchCV
    from labeldp.privacy.mechanisms.randomized_response import RandomizedResponse as RandomizedResponse
    from labeldp.privacy.vault import Identity as Identity
    from labeldp.privacy.vault import Vault as Vault
    from labeldp.releases import Release as Release

from labeldp.core.version import __version__ as __version__

# Loaded at first use: the command line must answer `--help` without loading Arrow, SciPy and a database.
_EXPORTS = {
    "core.errors": [
        "BudgetExceeded",
        "InputError",
        "LabelDPError",
        "LedgerError",
        "PrivacyWarning",
        "ReusedReleaseWarning",
    ],
    "core.guarantee": ["Budget", "Guarantee"],
    "core.label_space": ["LabelSpace"],
    "core.unproven": ["allow_unproven"],
    "estimators": ["LabelPrivateClassifier", "LabelPrivateRegressor", "LabelPrivateSearchCV"],
    "privacy.mechanisms.randomized_response": ["RandomizedResponse"],
    "privacy.vault": ["Identity", "Vault"],
    "releases": ["Release"],
}
_PACKAGES = [
    "accounting",
    "audit",
    "data",
    "evaluate",
    "learn",
    "mechanisms",
    "privacy",
    "recipes",
    "releases",
    "representation",
]
__all__, __getattr__, _names = lazy_exports("labeldp", _EXPORTS, _PACKAGES)  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return [*_names(), "__version__"]
