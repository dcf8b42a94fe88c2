"""A line from noisy sums of numbers."""

import numpy as np
import pytest
from scripted import Seeded

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.predictor import load_predictor
from labeldp.learn.ridge import Ridge
from labeldp.mechanisms import NumberSums

SPACE = ldp.LabelSpace.range(0, 100, 1)


def people(rows, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 3)).astype(np.float32)
    return Embeddings(x), np.clip(np.rint(40 + x @ [10, -5, 3] + generator.normal(0, 5, rows)), 0, 100)


def line(rows, epsilon, delta=0.0, seed=0):
    features, labels = people(rows)
    normalizer = RowNormalizer.fit(features, clip=True)
    vault = ldp.Vault(labels, SPACE, ldp.Budget(epsilon, delta))
    vault._bits = Seeded(seed)
    sums = vault.release(NumberSums(normalizer(features), epsilon, delta, n_values=101))
    return Ridge(normalizer).fit(features, sums), sums


def error(model):
    features, labels = people(2000, 1)
    return float(((model.predict(features) - labels) ** 2).mean())


def test_long_rows_are_cut_and_short_ones_stay():
    features, _ = people(500)
    normalizer = RowNormalizer.fit(features, clip=True)
    length = np.linalg.norm(normalizer(features)[:, :-1], axis=1)
    plain = np.linalg.norm(features._matrix - normalizer.mean, axis=1)
    assert length.max() <= 1 + 1e-6
    assert np.allclose(length, np.minimum(plain / np.median(plain), 1), atol=1e-5)
    assert (normalizer(features)[:, -1] == 1).all()


def test_more_rows_or_epsilon_give_less_error_down_to_the_scatter():
    errors = [np.mean([error(line(*setting, seed=s)[0]) for s in range(3)]) for setting in ((300, 0.2), (3000, 0.2))]
    assert errors[0] > errors[1]
    assert error(line(20_000, 2.0)[0]) < 50  # 25 is scatter, 134 of that what a line explains, some of it cut
    assert error(line(20_000, 2.0, 1e-6)[0]) < 50


def test_the_deviation_is_that_of_labels_around_the_line():
    model, sums = line(20_000, 5.0)
    assert model.deviation == pytest.approx(error(model) ** 0.5, rel=0.1)
    assert sums.mean + sums.center == pytest.approx(40, abs=1)


def test_noise_alone_says_the_middle():
    model, _ = line(300, 1e-4)
    assert np.abs(model.predict(people(100)[0]) - 50).max() < 10


def test_it_is_saved_and_loaded(tmp_path):
    model, sums = line(500, 1.0)
    features = people(100, 1)[0]
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m")
    assert np.array_equal(again.predict(features), model.predict(features))
    assert np.array_equal(again.predict_proba(features), model.predict_proba(features))
    assert np.allclose(model.predict_proba(features) @ np.arange(101), model.predict(features), atol=0.1)
    assert (again.guarantee, again.lineage) == (sums.guarantee, sums.lineage)
