import json

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import labeldp as ldp
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn import Supervised, Training
from labeldp.learn.predictor import load_predictor
from labeldp.learn.ridge import Ridge
from labeldp.learn.sklearn_learner import SklearnLearner
from labeldp.mechanisms import LinearQuery

SPACE = ldp.LabelSpace(["low", "high"])
ROWS = Embeddings(np.random.default_rng(0).normal(size=(120, 4)))
MODEL_FILES = {
    "linear": {"arrays.npz"},
    "logistic": {"arrays.npz", "classifier.skops"},
    "trees": {"arrays.npz", "classifier.skops"},
    "network": {"weights.safetensors"},
}


def make(kind):
    vault = ldp.Vault(["high" if v else "low" for v in ROWS._matrix[:, 0] > 0], SPACE, ldp.Budget(2.0))
    if kind == "linear":
        normalizer = RowNormalizer.fit(ROWS)
        return Ridge(normalizer).fit(ROWS, vault.release(LinearQuery(normalizer(ROWS), 0.3)))
    noisy = vault.release(ldp.RandomizedResponse(0.3), row_selection=np.arange(100))
    if kind == "network":
        return Supervised("linear", Training(epochs=1, device="cpu")).fit(ROWS, noisy)
    classifier = LogisticRegression() if kind == "logistic" else HistGradientBoostingClassifier(max_iter=3)
    return SklearnLearner(classifier, 1).fit(ROWS, noisy)


@pytest.mark.parametrize("kind", MODEL_FILES)
def test_every_type_of_model_is_saved_and_loaded(kind, tmp_path):
    model = make(kind)
    model.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m", device="cpu")
    assert type(again) is type(model)
    assert np.array_equal(again.predict_proba(ROWS), model.predict_proba(ROWS))
    assert np.array_equal(again.predict(ROWS), model.predict(ROWS))
    assert set(again.predict(ROWS)) <= {"low", "high"}
    assert again.space == SPACE
    assert again.guarantee == model.guarantee
    assert again.guarantee.epsilon == 0.3
    assert (again.guarantee.trust, again.guarantee.derivation) == (model.guarantee.trust, model.guarantee.derivation)
    assert again.lineage == model.lineage
    assert len(again.lineage) == 1
    again.save(tmp_path / "n")
    assert (tmp_path / "n" / "model.json").read_text() == (tmp_path / "m" / "model.json").read_text()


@pytest.mark.parametrize("kind", MODEL_FILES)
def test_a_missing_or_damaged_file_is_refused(kind, tmp_path):
    for index, name in enumerate(sorted({"model.json", *MODEL_FILES[kind]})):
        for damage in ("lost", "nonsense", "empty"):
            folder = tmp_path / f"{index}{damage}"
            make(kind).save(folder)
            (folder / name).unlink()
            if damage != "lost":
                (folder / name).write_bytes(b"nonsense" if damage == "nonsense" else b"")
            with pytest.raises(
                ldp.InputError, match=f"{folder.name} is not a model that labeldp wrote, or it is damag"
            ):
                load_predictor(folder, device="cpu")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "unheard of"},
        {"format": 1},
        {"format": 3},
        {"space": {"classes": 3}},
        {"guarantee": {"epsilons": 1}},
        {"lineage": [["a"]]},
        {"lineage": None},
    ],
    ids=str,
)
def test_invalid_metadata_is_refused(change, tmp_path):
    make("linear").save(tmp_path / "m")
    path = tmp_path / "m" / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote"):
        load_predictor(tmp_path / "m", device="cpu")


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}"])
def test_json_without_metadata_is_refused(text, tmp_path):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote"):
        load_predictor(tmp_path, device="cpu")


def test_no_folder_at_all(tmp_path):
    with pytest.raises(ldp.InputError, match=r"There is no folder .*nowhere"):
        load_predictor(tmp_path / "nowhere")


def test_a_folder_that_exists_is_not_written_over(tmp_path):
    model = make("linear")
    model.save(tmp_path / "m")
    before = (tmp_path / "m" / "model.json").read_text()
    with pytest.raises(ldp.InputError, match="exists: choose another path"):
        make("logistic").save(tmp_path / "m")
    assert (tmp_path / "m" / "model.json").read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_no_label_of_the_training_is_in_the_description(tmp_path):
    make("linear").save(tmp_path / "m")
    facts = json.loads((tmp_path / "m" / "model.json").read_text())
    assert set(facts) == {"format", "kind", "space", "guarantee", "lineage"}
