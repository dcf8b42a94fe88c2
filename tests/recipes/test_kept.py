from dataclasses import replace

import numpy as np
import pytest

import labeldp as ldp
from labeldp.learn import Supervised, Training
from labeldp.recipes.kept import embedded, taught


@pytest.fixture
def task(digits, tmp_path):
    task = digits.task(2.0, count=300, training=Training(epochs=1, batch=100, device="cpu"))
    return replace(task, folder=tmp_path)


@pytest.fixture
def trainings(monkeypatch):
    """The seeds of all trainings, as they come."""
    seeds, fit = [], Supervised.fit
    monkeypatch.setattr(Supervised, "fit", lambda self, *a: seeds.append(self.training.seed) or fit(self, *a))
    return seeds


def release(digits, epsilon=2.0):
    return digits.vault(epsilon, count=300).release(ldp.RandomizedResponse(epsilon))


def test_networks_are_trained_once_for_all_who_heard_the_same(digits, task, trainings):
    learner = Supervised("linear", task.training)
    first, again = release(digits), release(digits)
    models = taught(task, learner, first, [None, None])
    assert trainings == [0, 1]  # the second would otherwise be found in the checkpoint of the first
    found = taught(task, learner, again, [None, None])
    assert trainings == [0, 1]
    assert [model.digest() for model in found] == [model.digest() for model in models]
    assert first.entry != again.entry
    assert [model.lineage for model in found] == [again.lineage] * 2  # who reads them has paid for the same, elsewhere


@pytest.mark.parametrize("change", ["release", "settings", "rows", "no folder"])
def test_others_train_anew(digits, task, trainings, change):
    learner, heard = Supervised("linear", task.training), release(digits)
    taught(task, learner, heard, [None])
    other = {
        "release": lambda: (task, learner, release(digits, 1.0)),
        "settings": lambda: (task, replace(learner, mixup=1.0), heard),
        "rows": lambda: (replace(task, features=digits.features.select(np.arange(1, 301))), learner, heard),
        "no folder": lambda: (replace(task, folder=None), learner, heard),
    }[change]()
    taught(*other, [None])
    assert trainings == [0, 0]


def test_embeddings_are_the_same_to_the_last_bit(digits, task, monkeypatch):
    models = taught(task, Supervised("linear", task.training), release(digits), [None, None])
    made = embedded(task, models)
    assert np.array_equal(made[0], models[0].embed(task.features))
    plain = type(models[0]).embed  # on another machine
    monkeypatch.setattr(type(models[0]), "embed", lambda self, rows: plain(self, rows) * (1 + 1e-6))
    assert all(np.array_equal(*pair) for pair in zip(made, embedded(task, models), strict=True))
    assert not np.array_equal(made[0], embedded(replace(task, folder=None), models)[0])
    in_checkpoints = replace(task, folder=None, training=replace(task.training, checkpoint=task.folder))
    assert np.array_equal(made[0], embedded(in_checkpoints, models)[0])
