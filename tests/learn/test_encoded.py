import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import labeldp as ldp
from labeldp.core.errors import InputError
from labeldp.data import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn import Model, Supervised
from labeldp.learn.backbones import build
from labeldp.learn.encoded import EncodedModel, attach_linear_head, concat_embeddings, concat_encoders, split_encoder
from labeldp.learn.predictor import load_predictor, with_lineage
from labeldp.learn.ridge import Ridge
from labeldp.mechanisms import LinearQuery


@pytest.fixture(scope="module")
def encoded(digits):
    encoder = Model(build("cnn", (1, 8, 8), 1, width=4), None)
    rows = Embeddings(encoder.embed(digits.images))
    normalizer = RowNormalizer.fit(rows)
    return EncodedModel(encoder, Ridge(normalizer).fit(rows, digits.release(LinearQuery(normalizer(rows), 2.0, 1e-5))))


def test_it_sees_images_through_the_encoder(digits, encoded):
    rows = Embeddings(encoded.encoder.embed(digits.images))
    assert np.array_equal(encoded.predict_proba(digits.images), encoded.model.predict_proba(rows))
    assert np.array_equal(encoded.predict(digits.images), encoded.model.predict(rows))
    assert (encoded.predict(digits.images) == digits.labels).mean() > 0.3


def test_an_encoder_costs_nothing(encoded):
    assert (encoded.guarantee.epsilon, encoded.guarantee.delta) == (2.0, 1e-5)
    assert encoded.lineage == encoded.model.lineage
    assert encoded.space == encoded.model.space


def test_an_encoder_that_learnt_from_labels_costs_what_it_cost(digits, training, tmp_path):
    vault = ldp.Vault(digits.labels, ldp.LabelSpace(list(range(10))), ldp.Budget(9.0, 1e-5))
    learner = Supervised(partial(build, "cnn", width=4), replace(training, epochs=1))
    learnt = learner.fit(digits.images, vault.release(ldp.RandomizedResponse(8.0)))
    rows = Embeddings(learnt.embed(digits.images))
    normalizer = RowNormalizer.fit(rows)
    sums = vault.release(LinearQuery(normalizer(rows), 0.1, 1e-6))
    head = Ridge(normalizer).fit(rows, sums)
    model = EncodedModel(learnt, head)
    model.save(tmp_path / "m")
    for each in (model, load_predictor(tmp_path / "m", "cpu"), with_lineage(model, [sums])):
        assert each.guarantee.epsilon == pytest.approx(8.1)
        assert each.guarantee.delta == pytest.approx(1e-6)
        assert set(each.lineage) == {*learnt.lineage, *head.lineage}


def test_both_are_saved_and_loaded(digits, encoded, tmp_path):
    encoded.save(tmp_path / "m")
    again = load_predictor(tmp_path / "m", device="cpu")
    assert isinstance(again, EncodedModel)
    assert np.allclose(again.predict_proba(digits.images), encoded.predict_proba(digits.images), atol=1e-6)
    assert (again.guarantee, again.lineage, again.space) == (encoded.guarantee, encoded.lineage, encoded.space)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["encoder", "model", "model.json"]


@pytest.mark.parametrize("lost", ["model", "encoder", "model/arrays.npz", "encoder/weights.safetensors"])
def test_a_folder_without_a_part_is_refused(encoded, tmp_path, lost):
    import shutil

    encoded.save(tmp_path / "m")
    path = tmp_path / "m" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ldp.InputError, match=f"There is no folder .*{lost}|is not a model that labeldp wrote"):
        load_predictor(tmp_path / "m", device="cpu")


def test_a_linear_model_of_embeddings_becomes_the_head(digits, encoded, training):
    encoder = encoded.encoder
    rows = Embeddings(encoder.embed(digits.images))
    linear = Supervised("linear", training).fit(rows, digits.release(ldp.RandomizedResponse(5.0)))
    joined = attach_linear_head(encoder, linear)
    assert np.allclose(joined.predict_proba(digits.images), linear.predict_proba(rows), atol=1e-5)
    assert (joined.space, joined.guarantee, joined.lineage) == (linear.space, linear.guarantee, linear.lineage)
    assert encoder.network.head.out_features == 1  # the encoder itself is left as it was


def test_only_a_linear_model_of_these_embeddings_can(digits, encoded, training):
    release = digits.release(ldp.RandomizedResponse(5.0))
    rows = Embeddings(encoded.encoder.embed(digits.images))
    once = replace(training, epochs=1)
    with pytest.raises(InputError, match="linear"):
        attach_linear_head(encoded.encoder, Supervised("mlp", once).fit(rows, release))
    with pytest.raises(InputError, match="64 columns"):
        attach_linear_head(encoded.encoder, Supervised("linear", once).fit(digits.features, release))


@pytest.fixture(scope="module")
def two(digits):
    """Encoders of which one spreads rows a hundred times as far as the other."""
    encoders = [Model(build("cnn", (1, 8, 8), 1, width=width), None) for width in (4, 2)]
    encoders[1].network.mean.fill_(0.5)
    encoders[1].network.deviation.fill_(0.01)
    return encoders, concat_encoders(encoders, digits.images)


def test_concatenated_encoders_have_equal_weight(digits, two, tmp_path):
    encoders, both = two
    seen = [encoder.embed(digits.images) for encoder in encoders]
    found = both.embed(digits.images)
    assert found == pytest.approx(concat_embeddings(seen), rel=1e-3, abs=1e-4)
    parts = np.split(found, [seen[0].shape[1]], axis=1)
    assert [part.var(axis=0).sum() for part in parts] == pytest.approx([1, 1], rel=1e-3)
    for small in (False, True):
        both.save(tmp_path / f"{small}", quantize=small)
        again = Model.load(tmp_path / f"{small}", "cpu")
        assert again.embed(digits.images) == pytest.approx(found, abs=0.1 if small else 1e-6)
        assert [m.network.config for m in split_encoder(again)] == [e.network.config for e in encoders]


def test_a_learner_starts_from_the_first_of_several_encoders(digits, training, two):
    encoders, both = two
    release = digits.release(ldp.RandomizedResponse(3.0))
    learner = Supervised(training=replace(training, epochs=1))
    ours, theirs = (learner.fit(digits.images, release, start) for start in (both, encoders[0]))
    assert ours.digest() == theirs.digest()
    assert split_encoder(encoders[0]) == [encoders[0]]


def test_encoders_that_cannot_be_concatenated_are_refused(digits, two):
    with pytest.raises(InputError, match="use `split_encoder` first"):
        concat_encoders([two[1]], digits.images)
    with pytest.raises(InputError, match="There is no encoder"):
        concat_encoders([], digits.images)
    with pytest.raises(InputError, match="takes rows of 3 x 8 x 8, and these are 1 x 8 x 8"):
        concat_encoders([Model(build("resnet18", (3, 8, 8), 1, width=4), None)], digits.images)


def test_what_was_learnt_from_labels_is_not_forgotten(digits, training, two):
    release = digits.release(ldp.RandomizedResponse(3.0))
    learnt = Supervised(training=replace(training, epochs=1)).fit(digits.images, release, two[0][0])
    with pytest.raises(InputError, match="was trained on labels"):
        concat_encoders([two[0][0], learnt], digits.images)
    both = Model(copy.deepcopy(two[1].network), None, learnt.provenance)
    assert [(each.guarantee, each.lineage) for each in split_encoder(both)] == [(learnt.guarantee, learnt.lineage)] * 2
    rows = Embeddings(learnt.embed(digits.images))
    line = Supervised("linear", replace(training, epochs=1))
    assert attach_linear_head(learnt, line.fit(rows, release)).lineage == learnt.lineage
    with pytest.raises(InputError, match="not in the provenance of the linear model"):
        attach_linear_head(learnt, line.fit(rows, digits.release(ldp.RandomizedResponse(1.0))))
