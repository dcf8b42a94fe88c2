"""Consensus retraining (Das and Sanghavi 2025): train again on rows whose prediction equals the released label."""

from dataclasses import dataclass, field

import numpy as np

from labeldp.data.base import Features
from labeldp.learn.base import Learner
from labeldp.learn.model import Model
from labeldp.learn.supervised import Supervised
from labeldp.releases.base import Release


@dataclass(frozen=True)
class Consensus(Learner):
    """Fit `learner`, select the rows whose released label it predicts, and fit again on those, `n_rounds` times."""

    learner: Learner = field(default_factory=Supervised)
    n_rounds: int = 1

    def fit(self, features: Features, release: Release, start: Model | None = None) -> Model:
        """Train and retrain; the selection of rows is post-processing of the release."""
        labels = release.labels()
        model = self._learner_for_round(0).fit(features, release, start)
        for round_index in range(self.n_rounds):
            predictions = model.predict_proba(features).argmax(axis=1)
            model = self._learner_for_round(round_index + 1).fit(
                features, release.keep(np.equal(predictions, labels), derived_from=[model]), start
            )
        return model

    def _learner_for_round(self, round_index: int) -> Learner:
        """Return the learner with a separate checkpoint for this round."""
        path = self.learner.training.checkpoint
        return (
            self.learner.with_training(checkpoint=path.with_name(f"{path.name}.{round_index}"))
            if path
            else self.learner
        )
