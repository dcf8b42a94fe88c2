import numpy as np
import polars as pl
import pytest
import torch
from rated import SPACE, Ratings

import labeldp as ldp
from labeldp.data import Pairs
from labeldp.learn import Bayes, Model, Training
from labeldp.learn.backbones import build
from labeldp.learn.loop import train_network

SHAPE, CELLS = (5, 7), torch.tensor([[0, 0], [4, 6], [4, 2], [1, 2]])
TRAINING = Training(epochs=6, batch_size=128, learning_rate=0.03, optimizer="adam", prior_deviation=0.2, device="cpu")


def test_matrix_factorisation_is_biases_and_a_product():
    network = build("mf", SHAPE, 5, rank=3)
    torch.nn.init.normal_(network.encoder.biases[0].weight)
    (b, c), (p, q) = network.encoder.biases, network.encoder.factors
    expected = [b.weight[i] + c.weight[j] + p.weight[i] @ q.weight[j] for i, j in CELLS]
    assert torch.allclose(network.embed(CELLS), torch.stack(expected))


@pytest.mark.parametrize("name", ["mf", "ncf"])
def test_a_higher_score_speaks_for_a_later_class_at_first(name):
    head = build(name, SHAPE, 5).head
    assert (head.weight.diff(dim=0) > 0).all()
    assert not head.bias.any()


@pytest.mark.parametrize(("name", "options"), [("mf", {}), ("ncf", {}), ("ncf", {"product": False, "rank": 2})])
def test_a_saved_model_says_the_same(tmp_path, name, options):
    pairs = Pairs.fit(pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}))
    network = build(name, pairs.shape, 5, **options)
    Model(network, SPACE).save(tmp_path / "model")
    again = Model.load(tmp_path / "model", "cpu")
    assert np.array_equal(again.predict_proba(pairs), Model(network, SPACE).predict_proba(pairs))


@pytest.mark.parametrize("name", ["mf", "ncf"])
def test_clean_labels_teach_taste_beyond_biases(name):
    rated = Ratings()
    clean = ldp.Vault(rated.labels, SPACE, ldp.Budget(30.0)).release(ldp.RandomizedResponse(30.0))
    model = Bayes(name, TRAINING).fit(rated.features, clean)
    flat = build(name, rated.features.shape, 5)
    assert rated.error(model) < 0.78 < 0.9 < rated.error(Model(flat, SPACE))


def test_unseen_ids_get_the_average_score():
    rated = Ratings()
    clean = ldp.Vault(rated.labels, SPACE, ldp.Budget(30.0)).release(ldp.RandomizedResponse(30.0))
    model = Bayes("mf", TRAINING).fit(rated.features, clean)
    stranger = rated.features.apply(pl.DataFrame({"user": ["?"], "item": ["?"]}))
    assert model.predict_proba(stranger)[0] @ SPACE.class_values == pytest.approx(rated.labels.mean(), abs=0.25)


def test_backbones_and_rows_must_fit():
    with pytest.raises(ldp.InputError, match=r"'mf' needs pairs of ids; .* choose mlp or linear"):
        build("mf", (10,), 5)
    with pytest.raises(ldp.InputError, match=r"'mlp' needs columns or images; .* choose mf or ncf"):
        build("mlp", (10, 20), 5)
    with pytest.raises(ldp.InputError, match="'ncf' needs pairs of ids"):
        build("ncf", (3, 8, 8), 5)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_prior_weighs_as_much_as_its_rows_say(optimizer):
    """One weight w, and rows that all ask for 1 by (w - 1)^2 / 2: the best w is rows / (rows + 1 / deviation^2)."""
    for rows, deviation in ((4, 1.0), (64, 0.25)):
        network = torch.nn.Linear(1, 1, bias=False)
        training = Training(100, rows, optimizer, 0.2, prior_deviation=deviation, device="cpu")
        train_network(network, rows, lambda at, w=network.weight: ((w - 1) ** 2).sum() / 2, training)
        assert network.weight.item() == pytest.approx(rows / (rows + deviation**-2), abs=0.01)


@pytest.mark.parametrize(
    "wrong", [{"prior_deviation": 0.0}, {"prior_deviation": -1.0}, {"prior_deviation": 1.0, "optimizer": "adamw"}]
)
def test_a_prior_that_is_none_is_refused(wrong):
    with pytest.raises(ldp.InputError, match="prior_deviation must be above zero"):
        Training(**wrong)
