"""Learners: what turns features and a release into a model. None of them sees a label."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labeldp.learn.augdescent import AugDescent as AugDescent
    from labeldp.learn.base import Learner as Learner
    from labeldp.learn.bayes import Bayes as Bayes
    from labeldp.learn.bayes import EvidenceLoss as EvidenceLoss
    from labeldp.learn.consensus import Consensus as Consensus
    from labeldp.learn.coteaching import CoTeaching as CoTeaching
    from labeldp.learn.crossfit import CrossFit as CrossFit
    from labeldp.learn.debiased import Debiased as Debiased
    from labeldp.learn.fixmatch import FixMatch as FixMatch
    from labeldp.learn.loop import Training as Training
    from labeldp.learn.model import Model as Model
    from labeldp.learn.regression import Regression as Regression
    from labeldp.learn.semigan import SemiGAN as SemiGAN
    from labeldp.learn.softmatch import SoftMatch as SoftMatch
    from labeldp.learn.supervised import Supervised as Supervised
    from labeldp.learn.weighted import Weighted as Weighted

# Loaded at first use: `Weighted` needs no torch, and the base install has none.
_HOME_OF = {
    "AugDescent": "augdescent",
    "Bayes": "bayes",
    "CoTeaching": "coteaching",
    "Consensus": "consensus",
    "CrossFit": "crossfit",
    "Debiased": "debiased",
    "EvidenceLoss": "bayes",
    "FixMatch": "fixmatch",
    "Learner": "base",
    "Model": "model",
    "Regression": "regression",
    "SemiGAN": "semigan",
    "SoftMatch": "softmatch",
    "Supervised": "supervised",
    "Training": "loop",
    "Weighted": "weighted",
}
__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"labeldp.learn has no attribute {name!r}")
    try:
        value = getattr(import_module(f"labeldp.learn.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError as problem:
        if problem.name != "torch":
            raise
        raise ImportError("This learner needs torch: pip install 'labeldp[learn]'.") from None
    globals()[name] = value
    return value
