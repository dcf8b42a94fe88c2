"""Learners, which train a model on features and a release. No learner reads the true labels."""

from typing import TYPE_CHECKING

from labeldp.core.lazy import lazy_exports

if TYPE_CHECKING:
    from labeldp.learn.augdescent import AugDescent as AugDescent
    from labeldp.learn.backbones import build as build
    from labeldp.learn.base import Learner as Learner
    from labeldp.learn.bayes import Bayes as Bayes
    from labeldp.learn.bayes import EvidenceLoss as EvidenceLoss
    from labeldp.learn.boosting import BoostedModel as BoostedModel
    from labeldp.learn.boosting import Boosting as Boosting
    from labeldp.learn.consensus import Consensus as Consensus
    from labeldp.learn.coteaching import CoTeaching as CoTeaching
    from labeldp.learn.crossfit import CrossFit as CrossFit
    from labeldp.learn.debiased import Debiased as Debiased
    from labeldp.learn.evidence_dataset import EvidenceDataset as EvidenceDataset
    from labeldp.learn.fixmatch import FixMatch as FixMatch
    from labeldp.learn.model import Model as Model
    from labeldp.learn.regression import Regression as Regression
    from labeldp.learn.semigan import SemiGAN as SemiGAN
    from labeldp.learn.softmatch import SoftMatch as SoftMatch
    from labeldp.learn.supervised import Supervised as Supervised
    from labeldp.learn.training import Training as Training
    from labeldp.learn.weighted_em import WeightedEM as WeightedEM

__all__, __getattr__, __dir__ = lazy_exports(  # pyright: ignore[reportUnsupportedDunderAll]
    "labeldp.learn",
    {
        "augdescent": ["AugDescent"],
        "backbones": ["build"],
        "base": ["Learner"],
        "bayes": ["Bayes", "EvidenceLoss"],
        "boosting": ["BoostedModel", "Boosting"],
        "consensus": ["Consensus"],
        "coteaching": ["CoTeaching"],
        "crossfit": ["CrossFit"],
        "debiased": ["Debiased"],
        "fixmatch": ["FixMatch"],
        "model": ["Model"],
        "regression": ["Regression"],
        "semigan": ["SemiGAN"],
        "softmatch": ["SoftMatch"],
        "supervised": ["Supervised"],
        "evidence_dataset": ["EvidenceDataset"],
        "training": ["Training"],
        "weighted_em": ["WeightedEM"],
    },
)
