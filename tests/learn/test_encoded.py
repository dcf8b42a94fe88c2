from dataclasses import replace

import numpy as np
import pytest

import labeldp as ldp
from labeldp.errors import InputError
from labeldp.features import Embeddings
from labeldp.learn import Model, Supervised
from labeldp.learn.backbones import build
from labeldp.learn.encoded import EncodedModel, with_head
from labeldp.learn.predictor import load_predictor
from labeldp.learn.ridge import Ridge
from labeldp.represent.lift import Lift


@pytest.fixture(scope="module")
def encoded(digits):
    encoder = Model(build("cnn", (1, 8, 8), 1, width=4), None)
    rows = Embeddings(encoder.embed(digits.images))
    lift = Lift.fit(rows)
    return EncodedModel(encoder, Ridge(lift).fit(rows, digits.release(ldp.LinearQuery(lift(rows), 2.0, 1e-5))))


def test_it_sees_images_through_the_encoder(digits, encoded):
    rows = Embeddings(encoded.encoder.embed(digits.images))
    assert np.array_equal(encoded.predict_proba(digits.images), encoded.model.predict_proba(rows))
    assert np.array_equal(encoded.predict(digits.images), encoded.model.predict(rows))
    assert (encoded.predict(digits.images) == digits.labels).mean() > 0.3


def test_an_encoder_costs_nothing(encoded):
    assert (encoded.guarantee.epsilon, encoded.guarantee.delta) == (2.0, 1e-5)
    assert encoded.lineage == encoded.model.lineage
    assert encoded.space == encoded.model.space


def test_both_are_saved_and_loaded(digits, encoded, tmp_path):
    encoded.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m", device="cpu")
    assert isinstance(again, EncodedModel)
    assert np.allclose(again.predict_proba(digits.images), encoded.predict_proba(digits.images), atol=1e-6)
    assert (again.guarantee, again.lineage, again.space) == (encoded.guarantee, encoded.lineage, encoded.space)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["encoder", "model", "model.json"]


@pytest.mark.parametrize("lost", ["model", "encoder", "model/arrays.npz", "encoder/weights.safetensors"])
def test_a_folder_that_lost_a_part_is_told_in_a_sentence(encoded, tmp_path, lost):
    import shutil

    encoded.save(tmp_path / "m")
    path = tmp_path / "m" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ldp.InputError, match="is not a model that labeldp wrote, or it is damaged"):
        load_predictor(tmp_path / "m", device="cpu")


def test_a_linear_model_of_embeddings_becomes_the_head(digits, encoded, training):
    encoder = encoded.encoder
    rows = Embeddings(encoder.embed(digits.images))
    linear = Supervised("linear", training).fit(rows, digits.release(ldp.RandomizedResponse(5.0)))
    joined = with_head(encoder, linear)
    assert np.allclose(joined.predict_proba(digits.images), linear.predict_proba(rows), atol=1e-5)
    assert (joined.space, joined.guarantee, joined.lineage) == (linear.space, linear.guarantee, linear.lineage)
    assert encoder.network.head.out_features == 1  # the encoder itself is left as it was


def test_only_a_linear_model_of_these_embeddings_can(digits, encoded, training):
    release = digits.release(ldp.RandomizedResponse(5.0))
    rows = Embeddings(encoded.encoder.embed(digits.images))
    once = replace(training, epochs=1)
    with pytest.raises(InputError, match="linear"):
        with_head(encoded.encoder, Supervised("mlp", once).fit(rows, release))
    with pytest.raises(InputError, match="64 columns"):
        with_head(encoded.encoder, Supervised("linear", once).fit(digits.features, release))
