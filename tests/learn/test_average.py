import json

import numpy as np
import pytest
from scipy.special import softmax

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.average import AveragedModel, average_models
from labeldp.learn.predictor import load_predictor
from labeldp.learn.ridge import Ridge
from labeldp.mechanisms import LinearQuery
from labeldp.report.card.origin import describe_model

SPACE = ldp.LabelSpace(["low", "high"])
ROWS = Embeddings(np.random.default_rng(0).normal(size=(120, 4)))


def members(space=SPACE, count=3):
    codes = np.digitize(ROWS._matrix[:, 0], np.linspace(-0.5, 0.5, len(space) - 1))
    vault = ldp.Vault([space.classes[code] for code in codes], space, ldp.Budget(2.0))
    normalizer = RowNormalizer.fit(ROWS)
    epsilons = [0.25, 0.3, 0.2][:count]  # a repeated request would be the same release
    return [Ridge(normalizer).fit(ROWS, vault.release(LinearQuery(normalizer(ROWS), each))) for each in epsilons]


@pytest.mark.parametrize("space", [SPACE, ldp.LabelSpace(["a", "b", "c"])])
def test_probabilities_are_the_geometric_mean(space):
    models = members(space)
    found = average_models(models).predict_proba(ROWS)
    each = np.stack([np.maximum(model.predict_proba(ROWS), 1e-6) for model in models])
    slow = np.prod(each, axis=0) ** (1 / 3)
    assert np.allclose(found, slow / slow.sum(axis=1, keepdims=True))
    assert np.array_equal(average_models(models).predict(ROWS), np.array(space.classes)[found.argmax(axis=1)])


def test_a_member_that_is_certain_and_wrong_does_not_decide_alone():
    class Certain:
        space = SPACE

        def __init__(self, scores):
            self.scores = np.asarray(scores, float)

        def predict_proba(self, features):
            return np.tile(softmax(self.scores), (len(features), 1))

    parts = (Certain([-900.0, 0.0]), Certain([8.0, 0.0]), Certain([8.0, 0.0]))
    found = AveragedModel(SPACE, members(count=1)[0].provenance, parts).predict_proba(ROWS)
    assert np.isfinite(found).all()
    assert (found[:, 0] > found[:, 1]).all()


def test_it_rests_on_the_releases_of_all_members():
    models = members()
    average = average_models(models)
    assert average.guarantee.epsilon == pytest.approx(0.75)
    assert set(average.lineage) == {entry for model in models for entry in model.lineage}
    assert average_models(models[:1]) is models[0]
    assert describe_model(average) == "the mean of linear model, linear model, linear model"


def test_it_is_saved_and_read_back(tmp_path):
    model = average_models(members())
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m", device="cpu")
    assert type(again) is AveragedModel
    assert np.array_equal(again.predict_proba(ROWS), model.predict_proba(ROWS))
    assert (again.space, again.guarantee, again.lineage) == (SPACE, model.guarantee, model.lineage)


@pytest.mark.parametrize("members_field", [None, 0, 101, "3", 4])
def test_a_damaged_folder_is_refused(tmp_path, members_field):
    average_models(members()).save(tmp_path / "m")
    facts = json.loads((tmp_path / "m" / "model.json").read_text())
    facts["members"] = members_field
    (tmp_path / "m" / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ldp.InputError):
        load_predictor(tmp_path / "m")


def test_members_of_other_classes_are_refused(tmp_path):
    one, other = members(count=1), members(ldp.LabelSpace(["no", "yes"]), count=1)
    with pytest.raises(ldp.InputError, match="models of the same classes"):
        average_models([*one, *other])
    with pytest.raises(ldp.InputError, match="one or more models"):
        average_models([])
    average_models(members()).save(tmp_path / "m")
    other[0].save(tmp_path / "other")
    (tmp_path / "m" / "member-1").rename(tmp_path / "old")
    (tmp_path / "other").rename(tmp_path / "m" / "member-1")
    with pytest.raises(ldp.InputError):
        load_predictor(tmp_path / "m")
