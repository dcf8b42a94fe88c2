"""Consensus retraining (Das and Sanghavi 2025): train again where prediction and released label agree."""

from dataclasses import dataclass, field

import numpy as np

from labeldp.features.base import Features
from labeldp.learn.base import Learner
from labeldp.learn.model import Model
from labeldp.learn.supervised import Supervised
from labeldp.releases.base import Release


@dataclass(frozen=True)
class Consensus(Learner):
    """Fit `learner`, keep the rows whose released label it predicts, and fit again on those, `rounds` times."""

    learner: Learner = field(default_factory=Supervised)
    rounds: int = 1

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train and retrain; the agreement is post-processing and costs nothing."""
        labels = release.labels()
        model = self.learner.fit(features, release, start)
        for _ in range(self.rounds):
            predicted = model.predict_proba(features).argmax(axis=1)
            model = self.learner.fit(features, release.keep(np.equal(predicted, labels)), start)
        return model
