from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta, kstest

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import Supervised
from labeldp.learn.supervised import mix_batch, sample_mix_weight
from labeldp.mechanisms import GroupHistogram

RR = ldp.RandomizedResponse


def test_mixing_is_a_convex_combination_of_pairs():
    torch.manual_seed(0)
    inputs, targets = torch.eye(6), torch.eye(6)
    mixed, expected = mix_batch(inputs, targets, 1.0)
    assert torch.equal(mixed, expected)
    assert torch.allclose(mixed.sum(1), torch.ones(6))
    share = float(mixed.diagonal().min())
    for i, row in enumerate(mixed):
        others = [float(v) for j, v in enumerate(row) if j != i and v > 0]
        own = float(row[i])
        assert own == pytest.approx(1.0) or (own == pytest.approx(share) and others == pytest.approx([1 - share]))


@pytest.mark.parametrize("alpha", [0.5, 1.0, 4.0, 16.0])
def test_shares_follow_their_law(alpha):
    torch.manual_seed(0)
    drawn = [float(sample_mix_weight(alpha, torch.device("cpu"))) for _ in range(2000)]
    assert kstest(drawn, beta(alpha, alpha).cdf).pvalue > 1e-3


def test_mixup_keeps_noise_from_being_learnt_by_heart(digits, training):
    plain = digits.mean_accuracy(Supervised(training=training), RR(2.0))
    mixed = digits.mean_accuracy(Supervised(training=training, mixup=4.0), RR(2.0))
    assert plain < 0.65
    assert mixed > plain + 0.06


@pytest.mark.parametrize("options", [{}, {"augment": "strong", "label_smoothing": 0.1}])
def test_clean_labels_are_learnt(digits, training, options):
    assert digits.mean_accuracy(Supervised(training=training, **options), RR(30.0), seeds=1) > 0.95


def test_a_prior_is_learnt_from_its_posteriors(digits, training):
    from labeldp.representation.clusters import kmeans

    groups = kmeans(digits.features.batch(torch.arange(1400)).numpy(), 60)
    learner = Supervised(training=training, targets="posteriors")
    assert digits.mean_accuracy(learner, GroupHistogram(groups, 1.0), seeds=2) > 0.8


def test_only_released_rows_are_seen(digits, training):
    half = np.arange(0, 1400, 2)
    release = digits.release(RR(30.0), rows=half)
    spoiled = digits.features.batch(torch.arange(1400)).clone()
    spoiled[1::2] = torch.nan
    features = Embeddings(torch.nan_to_num(spoiled, 1e3).numpy())
    network = Supervised("linear", replace(training, epochs=2)).fit(features, release).network
    assert torch.isfinite(network.head.weight).all()


def test_a_start_is_continued(digits, training):
    release = digits.release(RR(30.0))
    first = Supervised(training=training).fit(digits.features, release)
    barely = replace(training, epochs=1, learning_rate=1e-6)
    assert digits.accuracy(Supervised(training=barely).fit(digits.features, release, start=first)) > 0.95
    assert digits.accuracy(Supervised(training=barely).fit(digits.features, release)) < 0.5


def test_rows_must_match_and_something_must_be_released(digits, training):
    release = digits.release(RR(1.0))
    with pytest.raises(ldp.InputError, match="10 rows of features and 1400"):
        Supervised(training=training).fit(digits.features.select(np.arange(10)), release)
    with pytest.raises(ldp.InputError, match="covers no row"):
        Supervised(training=training).fit(digits.features, release.keep(np.zeros(1400, bool)))


def test_pictures_and_the_users_own_network(digits, training):
    release = digits.release(RR(30.0))
    short = replace(training, epochs=10)
    own = lambda shape, classes: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))  # noqa: E731
    for backbone, enough in (("cnn", 0.9), (own, 0.6)):  # a linear model cannot follow shifted digits far
        model = Supervised(backbone, short).fit(digits.images, release)
        assert (model.predict(digits.images) == digits.labels).mean() > enough
