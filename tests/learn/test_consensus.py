from dataclasses import replace

import torch

import labeldp as ldp
from labeldp.learn import Consensus, Supervised


def test_retraining_where_both_agree_helps(digits, training):
    linear = Supervised("linear", training)
    plain = digits.mean_accuracy(linear, ldp.RandomizedResponse(1.5))
    ours = digits.mean_accuracy(Consensus(training=training, learner=linear), ldp.RandomizedResponse(1.5))
    assert ours > plain + 0.03


def test_rounds_do_not_take_each_others_checkpoints(digits, training, tmp_path):
    release = digits.release(ldp.RandomizedResponse(2.0))
    plain = Consensus(learner=Supervised("linear", training)).fit(digits.features, release)
    retained = Supervised("linear", replace(training, checkpoint=tmp_path / "c.pt"))
    saved = Consensus(learner=retained).fit(digits.features, release)
    assert torch.equal(plain.network.head.weight, saved.network.head.weight)
    again = Consensus(learner=retained).fit(digits.features, release)
    assert torch.equal(saved.network.head.weight, again.network.head.weight)


def test_only_rows_that_agree_are_retained(digits, training):
    retained = []

    class Watching(Supervised):
        def fit(self, features, release, start=None):
            retained.append(release)
            return super().fit(features, release, start)

    release = digits.release(ldp.RandomizedResponse(2.0))
    model = Watching("linear", training).fit(digits.features, release)
    agree = model.predict(digits.features) == release.labels()
    retained.clear()
    Consensus(learner=Watching("linear", training)).fit(digits.features, release)
    assert (retained[1].row_mask == agree).all()
    assert retained[1].guarantee == release.guarantee
