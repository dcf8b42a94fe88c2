from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import labeldp as ldp
from labeldp.accounting.lineage import Provenance
from labeldp.data import Embeddings, Images
from labeldp.learn import Model, Supervised
from labeldp.learn.backbones import EnsembleNetwork, build
from labeldp.learn.base import make_network

SPACE = ldp.LabelSpace(["a", "b", "c"])
ROWS = Embeddings(np.random.default_rng(0).normal(size=(50, 4)))
STATED = SimpleNamespace(guarantee=ldp.Guarantee(1.0, 1e-6), lineage=())


def model(network=None):
    return Model(network or build("mlp", (4,), 3, width=8), SPACE, Provenance.of(STATED))


@pytest.mark.parametrize("pair", [False, True])
def test_a_saved_model_predicts_the_same(tmp_path, pair):
    network = EnsembleNetwork([build("mlp", (4,), 3, width=8), build("linear", (4,), 3)]) if pair else None
    first = model(network)
    first.save(tmp_path / "m")
    again = Model.load(tmp_path / "m", device="cpu")
    assert np.array_equal(first.predict_proba(ROWS), again.predict_proba(ROWS))
    assert (again.space, again.guarantee) == (first.space, first.guarantee)
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "weights.safetensors"]


def test_batches_make_no_difference():
    whole, parts = (model(build("linear", (4,), 3)) for _ in range(2))
    parts.network.load_state_dict(whole.network.state_dict())
    assert np.allclose(whole.predict_proba(ROWS), parts.predict_proba(ROWS, batch_size=7), atol=1e-6)


@pytest.mark.parametrize("flip", [True, False])
def test_a_picture_and_its_mirror_image_have_one_answer_where_they_mean_the_same(flip, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (9, 3, 8, 8), dtype=np.uint8)
    loaded = model(make_network(partial(build, "cnn", width=4), Images(pixels, flip=flip), 3))
    loaded.save(tmp_path / "m")
    loaded = Model.load(tmp_path / "m", "cpu")
    with torch.no_grad():
        alone = [loaded.network.eval()(torch.tensor(p / 255).float()).softmax(1).numpy() for p in _and_mirrored(pixels)]
    seen, mirrored = (loaded.predict_proba(Images(p)) for p in _and_mirrored(pixels))  # whoever asks may not know
    assert np.allclose(seen, np.mean(alone, axis=0) if flip else alone[0], atol=1e-5)
    assert np.allclose(seen, mirrored, atol=1e-5) == flip


def test_rows_of_another_shape_are_refused(tmp_path):
    pixels = np.zeros((2, 3, 16, 16), np.uint8)
    loaded = model(EnsembleNetwork([build("resnet18", (3, 8, 8), 3, width=2)] * 2))
    for function in (loaded.predict_proba, Model(loaded.network.networks[0], None).embed):
        with pytest.raises(ldp.InputError, match="takes rows of 3 x 8 x 8, and these are 3 x 16 x 16"):
            function(Images(pixels))
    with pytest.raises(ldp.InputError, match="takes rows of 4, and these are 3"):
        model().predict(Embeddings(np.zeros((2, 3))))


def test_whoever_may_read_a_saved_model_may_read_its_weights(tmp_path):
    model().save(tmp_path / "m")
    assert len({path.stat().st_mode for path in (tmp_path / "m").iterdir()}) == 1


def _and_mirrored(pixels):
    return pixels, pixels[..., ::-1].copy()


def test_predictions_are_labels():
    assert set(model().predict(ROWS)) <= {"a", "b", "c"}


def test_an_encoder_has_no_classes(tmp_path):
    encoder = Model(build("mlp", (4,), 1, width=8), None)
    assert encoder.embed(ROWS).shape == (50, 8)
    with pytest.raises(ldp.InputError, match="encoder without classes"):
        encoder.predict_proba(ROWS)
    encoder.save(tmp_path / "e")
    assert Model.load(tmp_path / "e", device="cpu").space is None


def test_a_users_own_module_predicts_but_is_not_rebuilt(tmp_path):
    own = model(nn.Sequential(nn.Linear(4, 3)))
    assert own.predict_proba(ROWS).shape == (50, 3)
    with pytest.raises(ldp.InputError, match="save the weights of yours"):
        own.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_damaged_models_and_absent_devices(tmp_path):
    model().save(tmp_path / "m")
    (tmp_path / "m" / "weights.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ldp.InputError, match="damaged"):
        Model.load(tmp_path / "m", device="cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ldp.InputError, match="no GPU"):
            Model.load(tmp_path / "m", device="cuda")


def test_a_model_that_began_from_another_release_carries_both_costs(digits, training, tmp_path):
    vault = ldp.Vault(digits.labels, ldp.LabelSpace(list(range(10))), ldp.Budget(9.0))
    loud, quiet = (vault.release(ldp.RandomizedResponse(epsilon)) for epsilon in (4.0, 1.0))
    learner = Supervised("linear", replace(training, epochs=1))
    first = learner.fit(digits.features, loud)
    assert first.guarantee == loud.guarantee
    second = learner.fit(digits.features, quiet, start=first)
    assert second.guarantee.epsilon == 5.0
    second.save(tmp_path / "m")
    third = learner.fit(digits.features, quiet, start=Model.load(tmp_path / "m", device="cpu"))
    assert third.guarantee.epsilon == 5.0  # the same uses of labels, counted once
    agree = first.predict(digits.features) == quiet.labels()
    assert quiet.keep(agree, derived_from=[first]).guarantee.epsilon == 5.0
    assert quiet.relabel(loud.labels(), derived_from=[loud]).guarantee.epsilon == 5.0
    assert quiet.keep(agree).guarantee == quiet.guarantee
