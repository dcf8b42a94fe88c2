"""Networks that learn numbers: one location for each row, and a curve around it that is as wide as labels leave it."""

import numpy as np
import pytest
import torch
from scripted import Seeded

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.learn import AugDescent, Bayes, CoTeaching, FixMatch, Supervised, Training
from labeldp.learn.backbones import RegressionHead, build, rebuild
from labeldp.learn.density import label_grid, point_estimates
from labeldp.learn.predictor import load_predictor
from labeldp.mechanisms import RROnBins

SPACE = ldp.LabelSpace.range(0, 100, 2)
GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(size=(800, 3)).astype(np.float32)
LABELS = np.clip(np.rint((50 + 15 * np.sin(2 * ROWS[:, 0]) + GENERATOR.normal(0, 5, 800)) / 2) * 2, 0, 100)
FEATURES = Embeddings(ROWS)
QUICK = Training(epochs=12, batch_size=64, device="cpu")


def settings(loss="squared"):
    return {"low": 0.0, "high": 100.0, "loss": loss, "center": 50.0, "deviation": 12.0}


def network(loss="squared", name="mlp"):
    return lambda shape, classes: build(name, shape, classes, head_config=settings(loss))


def released(epsilon):
    vault = ldp.Vault(LABELS, SPACE, ldp.Budget(epsilon))
    vault._bits = Seeded(0)
    return vault.release(RROnBins(epsilon, np.full(51, 1 / 51)))


@pytest.mark.parametrize(("loss", "at"), [("squared", 0.7), ("absolute", -0.4), ("poisson", 0.2)])
def test_the_curve_lies_around_the_location(loss, at):
    head = RegressionHead(4, 51, **settings(loss)).eval()
    with torch.no_grad():
        head.linear_model.bias.fill_(at * 2)  # divided by the root of the width
        probabilities = torch.softmax(head(torch.zeros(1, 4)), dim=1).numpy()
    assert point_estimates(probabilities, label_grid(SPACE), loss)[0] == pytest.approx(50 + 12 * at, abs=1.5)


def test_the_curve_gets_narrower_as_locations_spread():
    head = RegressionHead(1, 51, **settings())
    with torch.no_grad():
        head.linear_model.weight.fill_(1.0)
    x = torch.linspace(-1.2, 1.2, 64)[:, None]
    before = torch.softmax(head.eval()(torch.zeros(1, 1)), dim=1).max()
    head.train()
    for _ in range(200):
        head(x)
    assert head.location_variance == pytest.approx(float(x.var()), rel=0.01)
    assert torch.softmax(head.eval()(torch.zeros(1, 1)), dim=1).max() > 1.2 * before


@pytest.mark.parametrize("loss", ["squared", "absolute", "poisson"])
def test_the_loop_of_alibi_learns_numbers(loss):
    model = Bayes(network(loss), QUICK).fit(FEATURES, released(4.0))
    predicted = model.predict(FEATURES)
    assert ((predicted - LABELS) ** 2).mean() < 0.6 * LABELS.var()
    assert predicted.dtype.kind == "f"
    assert len(np.unique(predicted)) > 500  # not values of the grid


def test_posteriors_can_be_learnt_and_the_model_is_saved(tmp_path):
    model = Supervised(network(), QUICK, targets="posteriors").fit(FEATURES, released(30.0))
    assert ((model.predict(FEATURES) - LABELS) ** 2).mean() < 0.6 * LABELS.var()
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m", device="cpu")
    assert np.allclose(again.predict_proba(FEATURES), model.predict_proba(FEATURES), atol=1e-6)
    assert again.network.loss == "squared"
    assert isinstance(rebuild(model.network.config).head, RegressionHead)


def test_a_plain_head_over_the_grid_predicts_a_mean():
    model = Bayes("linear", Training(epochs=1, device="cpu")).fit(FEATURES, released(4.0))
    probabilities = model.predict_proba(FEATURES)
    assert np.allclose(model.predict(FEATURES), probabilities @ label_grid(SPACE), atol=1e-3)


@pytest.mark.parametrize("learner", [FixMatch, AugDescent, CoTeaching, Supervised])
def test_learners_of_classes_say_so(learner):
    options = {"noise_rate": 0.1} if learner is CoTeaching else {}
    with pytest.raises(ldp.InputError, match="is for classification, and these labels are numbers"):
        learner(network(), QUICK, **options).fit(FEATURES, released(4.0))
