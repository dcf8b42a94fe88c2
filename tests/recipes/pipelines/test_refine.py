"""`refine` on pictures of digits, through an encoder that was trained without labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scripted import Seeded
from sklearn.linear_model import LogisticRegression

import labeldp as ldp
from labeldp.data import Images
from labeldp.learn import Model, SoftMatch, Training
from labeldp.learn.backbones import Network, build
from labeldp.learn.encoded import concat_encoders
from labeldp.learn.predictor import load_predictor
from labeldp.mechanisms import LinearQuery
from labeldp.recipes.advisor.forecast import advise
from labeldp.recipes.pipelines.refine import calibrate, refine
from labeldp.recipes.task import Task
from labeldp.recipes.training import train
from labeldp.representation.contrastive import SimCLR

SOME = 1000


def pictures(features, count):
    pixels = features.batch(torch.arange(count)).reshape(-1, 1, 8, 8)
    return Images((pixels * 254).byte().numpy(), flip=False)


@pytest.fixture(scope="module")
def encoder(digits):
    training = Training(epochs=8, batch_size=250, learning_rate=0.1, device="cpu")
    return SimCLR("cnn", training).fit(pictures(digits.features, SOME))


def refined(digits, encoder, epsilon, seed=0, training=None, **options):
    training = training or Training(epochs=8, batch_size=100, learning_rate=0.1, device="cpu", seed=seed)
    task = digits.task(epsilon, 1e-5, seed, count=SOME, training=training)
    task = replace(task, features=pictures(digits.features, SOME), encoder=encoder)
    vault = digits.vault(epsilon, 1e-5, seed, count=SOME)
    return train(vault, task, "refine", options, score=False)


SUMS, ANSWERS = "LinearQuery", "RRMaxInformation"


@pytest.mark.parametrize(
    ("epsilon", "sufficient_signal", "asks", "gain"),
    [
        (0.9, 500.0, [SUMS], -0.05),
        (0.9, 25.0, [SUMS] * 2, 0.0),
        (0.9, 16.0, [SUMS] * 3, 0.0),
        (4.0, 60.0, [SUMS, SUMS, SUMS, ANSWERS], 0.01),
    ],
)
def test_it_ends_near_or_above_the_linear_model_of_its_sums(
    digits, encoder, epsilon, sufficient_signal, asks, gain, tmp_path, monkeypatch
):
    """Pseudo-labels of a thousand digits, which a small encoder hardly separates, gain little; responses gain more.

    Where sums need a small epsilon, there are also sums over the network of SoftMatch, and over the next network.
    """
    monkeypatch.setattr("labeldp.recipes.budget_split.SUFFICIENT_SIGNAL", sufficient_signal)
    trained = refined(digits, encoder, epsilon)
    assert [release.mechanism for release in trained.releases] == asks
    assert len(trained.releases[-1].lineage) == len(asks)  # each rests on all that came before it
    assert epsilon * (1 - 1e-12) < trained.guarantee.epsilon <= epsilon
    assert 1e-5 * (1 - 1e-12) < trained.guarantee.delta <= 1e-5
    linear = (trained.releases[0].labels() == digits.labels[:SOME]).mean()
    known, new = pictures(digits.features, SOME), pictures(digits.new, len(digits.new))
    assert (trained.model.predict(known) == digits.labels[:SOME]).mean() > linear + gain
    trained.model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m", device="cpu")
    assert np.allclose(again.predict_proba(new), trained.model.predict_proba(new), atol=1e-6)


def test_at_the_smallest_epsilons_balanced_clusters_are_counted(digits, encoder):
    trained = refined(digits, encoder, 0.2)
    assert [release.mechanism for release in trained.releases] == ["GroupHistogram"]
    assert (trained.guarantee.epsilon, trained.guarantee.delta) == (0.2, 0.0)
    right = (trained.model.predict(pictures(digits.features, SOME)) == digits.labels[:SOME]).mean()
    assert right > 0.4  # sums at this epsilon: about 0.3


class Stopped(Exception):
    """Somebody pulled the plug."""


def test_a_run_of_two_encoders_that_is_stopped_goes_on_with_the_same_releases(digits, encoder, tmp_path, monkeypatch):
    """Delta is such that half of it, written out, is a little more than half."""
    epsilon, delta, few = 4.0, 1 / 3000, np.arange(200)
    features = pictures(digits.features, SOME).select(few)

    def stop(epoch, loss):
        raise Stopped

    training = Training(epochs=1, batch_size=50, learning_rate=0.02, device="cpu", checkpoint=tmp_path, progress=stop)
    space = ldp.LabelSpace(range(10))
    task = Task(features, space, np.ones(200, bool), epsilon, delta, training=training)
    task = replace(task, encoder=concat_encoders([encoder, encoder], features))

    def run():
        budget, identity = ldp.Budget(epsilon, delta), ldp.Identity("digits", "label", 200)
        vault = ldp.Vault(digits.labels[few], space, budget, ledger=tmp_path / "ledger.db", identity=identity)
        return train(vault, task, "refine", score=False)

    for _ in range(4):  # after the epoch of SoftMatch, of either network that it helps to teach, and of the last one
        with pytest.raises(Stopped):
            run()
    trained = run()
    assert [len(release.lineage) for release in trained.releases] == [1, 2, 3, 4]
    assert trained.model.lineage == trained.releases[-1].lineage
    assert trained.guarantee.epsilon <= epsilon
    assert trained.guarantee.delta <= delta
    assert trained.model.digest() == run().model.digest()
    plain = Model.embed  # elsewhere, the last bits of what a network says of a row are others
    monkeypatch.setattr(Model, "embed", lambda self, rows: plain(self, rows) * (1 + 1e-6 * bool(self.lineage)))
    assert [release.entry for release in run().releases] == [release.entry for release in trained.releases]


def test_two_encoders_have_a_network_each_and_one_model_learns_from_both(digits, encoder, monkeypatch):
    both = concat_encoders([encoder, encoder], pictures(digits.features, SOME))
    trained, begun = [], SoftMatch.fit_many
    monkeypatch.setattr(SoftMatch, "fit_many", lambda self, *a: trained.append(len(a[-1])) or begun(self, *a))
    model = refined(
        digits, both, 0.9, training=Training(epochs=1, batch_size=100, learning_rate=0.02, device="cpu")
    ).model
    assert trained == [2, 2]  # in the rehearsal, too
    assert isinstance(model.network, Network)
    assert len(model.lineage) == 1


def test_the_lineage_of_the_model_holds_all_releases(digits, encoder, monkeypatch):
    """Whoever runs a recipe says so of its model, too: here nobody does."""
    monkeypatch.setattr("labeldp.recipes.budget_split.SUFFICIENT_SIGNAL", 60.0)
    training = Training(epochs=1, batch_size=100, learning_rate=0.1, device="cpu")
    task = digits.task(4.0, 1e-5, count=SOME, training=training)
    steps = refine(replace(task, features=pictures(digits.features, SOME), encoder=encoder))
    model, releases = answered(steps, digits.vault(4.0, 1e-5, count=SOME))
    assert len(releases) == 4
    assert {use.entry for use in model.lineage} == {release.entry for release in releases}
    planned = advise(SOME, 10, 4.0, 1e-5, "images").forecast("refine").uses
    requested = [(release.mechanism, *map(release.parameters.get, ("epsilon", "delta"))) for release in releases]
    assert [(use.mechanism, use.epsilon, use.delta or None) for use in planned] == requested


def test_labels_of_one_owner_share_what_sums_need(digits, encoder, monkeypatch):
    """A label of two has half of epsilon, so that sums ask for twice as much of it."""
    monkeypatch.setattr("labeldp.recipes.budget_split.SUFFICIENT_SIGNAL", 60.0)
    task = digits.task(1.0, 1e-5, count=SOME, training=Training(epochs=1, batch_size=100, device="cpu"))
    first = []
    for users in (None, np.arange(SOME) // 2):
        own = replace(task, features=pictures(digits.features, SOME), encoder=encoder, epsilon=16.0, users=users)
        first.append(next(refine(own)).mechanism.epsilon)
    assert first == [0.6, 1.2]


def answered(steps, vault):
    releases, reply = [], None
    try:
        while True:
            request = steps.send(reply)
            reply = vault.release(request.mechanism, derived_from=request.derived_from)
            releases.append(reply)
    except StopIteration as end:
        return end.value, releases


def test_it_needs_an_encoder_and_says_so_before_anything_is_spent(digits):
    vault, task = digits.vault(1.0, count=SOME), digits.task(1.0, count=SOME)
    for encoder in (None, Model(build("cnn", (1, 8, 8), 1, width=4), None)):
        for model in ("auto", LogisticRegression()):
            with pytest.raises(ldp.InputError, match="begins from an encoder of images"):
                train(vault, replace(task, encoder=encoder, model=model), "refine")
    assert not vault.ledger.entries()


@pytest.mark.parametrize("options", [{"clusters": 0}, {"rows_per_class": 0}])
def test_options_that_make_no_sense_are_refused_before_anything_is_spent(digits, encoder, options):
    vault, task = digits.vault(1.0, count=SOME), digits.task(1.0, count=SOME)
    with pytest.raises(ldp.InputError, match="at least one row a class and one cluster"):
        train(vault, replace(task, features=pictures(digits.features, SOME), encoder=encoder), "refine", options)
    assert not vault.ledger.entries()


@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_probabilities_are_as_sharp_as_they_are_right(epsilon):
    """Labels drawn from a known law, of which a ridge regression sees the shape but not the sharpness."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(20_000, 8))
    rows = np.concatenate([rows, np.ones((len(rows), 1))], axis=1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    probabilities = softmax(9 * rows @ generator.normal(size=(9, 4)), axis=1)
    labels = (probabilities.cumsum(axis=1) > generator.random((len(rows), 1))).argmax(axis=1)
    vault = ldp.Vault(labels, ldp.LabelSpace([0, 1, 2, 3]), ldp.Budget(epsilon, 1e-5))
    vault._bits = Seeded(0)
    sums = vault.release(LinearQuery(rows, epsilon, 1e-5))
    found = calibrate(rows, sums)
    right = found.argmax(axis=1) == labels
    assert found.max(axis=1).mean() == pytest.approx(right.mean(), abs=0.03)
    assert sums.mean_score == pytest.approx((rows @ sums.coefficients)[np.arange(len(rows)), labels].mean(), abs=0.01)
    plain = np.exp(sums.log_evidence())
    assert plain.max(axis=1).mean() < right.mean() - 0.1  # which is what there was to mend
