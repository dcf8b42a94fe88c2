import numpy as np
import pytest

import labeldp as ldp
from labeldp.data import Embeddings, Images
from labeldp.data.feature_reader import FeatureReader
from labeldp.learn import Bayes, FixMatch, Model, Supervised, Training
from labeldp.learn.backbones import build
from labeldp.learn.encoded import EncodedModel
from labeldp.learn.ridge import Ridge
from labeldp.learn.sklearn_learner import SklearnLearner
from labeldp.mechanisms import LinearQuery
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task, default_training

SPACE = ldp.LabelSpace([0, 1, 2])
ROWS = Embeddings(np.random.default_rng(0).normal(size=(60, 5)))


def task(features=ROWS, **options):
    return Task(features, SPACE, **({"row_mask": all_rows(len(features)), "epsilon": 1.0} | options))


@pytest.mark.parametrize("wrong", [-0.5, float("inf"), float("nan"), "4"])
def test_a_mixture_that_cannot_be_is_refused(wrong):
    with pytest.raises(ldp.InputError, match="mixup is 0, for rows as they are, or a number above 0"):
        task().resolve_mixup(wrong)


def test_parts_are_disjoint_cover_the_rows_and_depend_on_the_seed_alone():
    rows = np.arange(60) % 2 == 0
    parts = task(row_mask=rows).split_row_masks([0.5, 0.3, 0.2])
    assert np.array_equal(np.sum(parts, axis=0), rows.astype(int))
    assert [int(p.sum()) for p in parts] == [15, 9, 6]
    assert all(
        np.array_equal(a, b) for a, b in zip(parts, task(row_mask=rows).split_row_masks([0.5, 0.3, 0.2]), strict=True)
    )
    assert not np.array_equal(parts[0], task(row_mask=rows, seed=1).split_row_masks([0.5, 0.3, 0.2])[0])


def test_all_rows_of_a_user_fall_into_one_part():
    users = np.arange(60) % 12
    parts = task(row_mask=np.arange(60) < 50, users=users).split_row_masks([0.5, 0.5])
    assert not set(users[parts[0]]) & set(users[parts[1]])
    assert int(parts[0].sum() + parts[1].sum()) == 50


def test_learners_are_those_of_the_models_kind():
    from sklearn.linear_model import LogisticRegression

    training = Training(epochs=3)
    learner = task(model="linear", training=training).learner(Supervised, mixup=2.0)
    assert (type(learner), learner.backbone, learner.training, learner.mixup) == (Supervised, "linear", training, 2.0)
    classifier = LogisticRegression()
    assert task(model=classifier).learner(Bayes) == SklearnLearner(classifier)
    with pytest.raises(ldp.InputError, match="FixMatch trains networks: choose a backbone, not LogisticRegression"):
        task(model=classifier).learner(FixMatch)
    with pytest.raises(ldp.InputError, match="LogisticRegression cannot begin from an encoder"):
        task(model=classifier, encoder=Model(build("mlp", (5,), 1, width=4), None)).learner(Supervised)


def test_a_default_schedule_sees_about_a_million_rows():
    assert default_training(task(seed=5)).seed == 5
    assert default_training(task()).epochs == 30
    many = Task(ROWS, SPACE, all_rows(50_000), 1.0)
    assert (default_training(many).epochs, default_training(many).batch_size) == (20, 256)
    images = Task(Images(np.zeros((2, 1, 8, 8), np.uint8)), SPACE, all_rows(2), 1.0)
    assert default_training(images).epochs == 60


def test_pictures_on_a_gpu_are_seen_oftener_and_pay_for_a_compilation(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    images = Images(np.zeros((2, 1, 8, 8), np.uint8))
    many, few = (Task(images, SPACE, all_rows(rows), 1.0) for rows in (50_000, 200))
    assert (default_training(many).epochs, default_training(many).compile) == (120, True)
    assert (default_training(many, device="cpu").epochs, default_training(many, device="cpu").compile) == (20, False)
    assert (default_training(few).epochs, default_training(few).compile) == (120, False)
    assert default_training(Task(ROWS, SPACE, all_rows(50_000), 1.0)).epochs == 20


def test_clusters_are_no_more_than_rows():
    few = task(Embeddings(np.random.default_rng(0).normal(size=(4, 3))))
    assert set(few.find_clusters(99)) <= set(range(4))


def test_images_are_seen_through_the_encoder_and_other_features_as_they_are():
    images = Images(np.random.default_rng(0).integers(0, 255, (20, 1, 8, 8)).astype(np.uint8))
    encoder = Model(build("cnn", (1, 8, 8), 1, width=4), None)
    seen = task(images, encoder=encoder)
    assert seen.encoded_features.kind == "embeddings"
    assert np.array_equal(seen.encoded_features.batch(np_rows(20)).numpy(), encoder.embed(images))
    assert task(images).encoded_features is images
    plain = task(encoder=Model(build("mlp", (5,), 1, width=4), None))
    assert plain.encoded_features is ROWS
    sums = ldp.Vault(np.arange(20) % 3, SPACE, ldp.Budget(1.0)).release(LinearQuery(seen.normalized, 1.0))
    linear = Ridge(seen.normalizer).fit(seen.encoded_features, sums)
    model = seen.with_encoder(linear)
    assert isinstance(model, EncodedModel)
    assert model.predict_proba(images).shape == (20, 3)
    assert task().with_encoder(linear) is linear


def np_rows(count):
    import torch

    return torch.arange(count)


def test_dense_rows_are_lifted_to_fewer_columns_where_noise_is_pure_or_large():
    wide = Embeddings(np.random.default_rng(0).normal(size=(60, 300)))  # 20 rows a class
    assert task(wide).normalized.shape == (60, 33)  # and 60 centred rows span 59 directions
    for epsilon, columns in ((1e-3, 16), (6.0, 40), (1e3, 59)):
        assert task(wide, delta=1e-6, epsilon=epsilon).normalized.shape == (60, columns + 1)
    of_users = task(wide, delta=1e-6, epsilon=12.0, users=np.arange(60) // 2)  # whose two labels share it
    assert of_users.normalized.shape == (60, 41)


def test_sums_of_a_table_hear_how_long_a_row_is_and_others_do_not():
    numbers = np.random.default_rng(0).normal(size=(60, 5))
    of_table = task(FeatureReader.fit(numbers, "table")[1])
    lengths = np.linalg.norm(of_table.normalized_for_sums[:, :-1], axis=1)
    assert "normalizer" not in vars(of_table)  # which nothing asked for, and which takes long of many columns
    assert lengths.max() == pytest.approx(1, abs=1e-5)
    assert lengths.min() < 0.9
    dense = task()
    assert dense.normalized_for_sums is dense.normalized
