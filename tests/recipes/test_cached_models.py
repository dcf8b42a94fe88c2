from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import labeldp as ldp
from labeldp.learn import Supervised, Training
from labeldp.recipes.cached_models import cached_embeddings, train_or_load


@pytest.fixture
def task(digits, tmp_path):
    task = digits.task(2.0, count=300, training=Training(epochs=1, batch_size=100, device="cpu"))
    return replace(task, folder=tmp_path)


@pytest.fixture
def trainings(monkeypatch):
    """The seeds of all trainings, as they come."""
    seeds, fit = [], Supervised.fit
    monkeypatch.setattr(Supervised, "fit", lambda self, *a: seeds.append(self.training.seed) or fit(self, *a))
    return seeds


INITIAL_POSTERIOR = np.zeros(0)


def release(digits, epsilon=2.0):
    return digits.vault(epsilon, count=300).release(ldp.RandomizedResponse(epsilon))


def test_networks_are_trained_once_for_all_runs_with_the_same_release(digits, task, trainings):
    learner = Supervised("linear", task.training)
    first, again = release(digits), release(digits)
    models = train_or_load(task, learner, first, [None, None], INITIAL_POSTERIOR)
    assert trainings == [0, 1]  # the second would otherwise be found in the checkpoint of the first
    found = train_or_load(task, learner, again, [None, None], INITIAL_POSTERIOR)
    assert trainings == [0, 1]
    assert [model.digest() for model in found] == [model.digest() for model in models]
    assert first.entry != again.entry
    assert [model.lineage for model in found] == [again.lineage] * 2  # who reads them has paid for the same, elsewhere


@pytest.mark.parametrize("change", ["release", "settings", "rows", "no folder", "encoder", "starts", "beliefs"])
def test_others_train_anew(digits, task, trainings, change):
    learner, noisy = Supervised("linear", task.training), release(digits)
    (model,) = train_or_load(task, learner, noisy, [None], INITIAL_POSTERIOR)
    other = {
        "release": lambda: (task, learner, release(digits, 1.0), [None], INITIAL_POSTERIOR),
        "settings": lambda: (task, replace(learner, mixup=1.0), noisy, [None], INITIAL_POSTERIOR),
        "rows": lambda: (moved(task, digits), learner, noisy, [None], INITIAL_POSTERIOR),
        "no folder": lambda: (replace(task, folder=None), learner, noisy, [None], INITIAL_POSTERIOR),
        "encoder": lambda: (replace(task, encoder=model), learner, noisy, [None], INITIAL_POSTERIOR),
        "starts": lambda: (task, learner, noisy, [None, None], INITIAL_POSTERIOR),
        "beliefs": lambda: (task, learner, noisy, [None], np.ones(1)),
    }[change]()
    train_or_load(*other)
    assert trainings == ([0, 0, 1] if change == "starts" else [0, 0])


def moved(task, digits):
    return replace(task, features=digits.features.select(np.arange(1, 301)))


def test_who_reads_networks_borrows_the_time_that_they_took(digits, task):
    learner = Supervised("linear", task.training)
    train_or_load(task, learner, release(digits), [None], INITIAL_POSTERIOR)
    assert not task.reused_seconds
    (seconds_file,) = task.folder.glob("networks-*/seconds")
    seconds_file.write_text("12.5")
    train_or_load(replace(task, epsilon=3.0), learner, release(digits), [None], INITIAL_POSTERIOR)
    assert task.reused_seconds == [12.5]


def test_two_processes_that_want_the_same_make_it_once(digits, task, trainings):
    """Threads stand for processes: the lock is a file."""
    noisy, learner = release(digits), Supervised("linear", task.training)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(train_or_load, task, learner, noisy, [None], INITIAL_POSTERIOR) for _ in range(2)]
    (first,), (second,) = (job.result() for job in jobs)
    assert trainings == [0]
    assert first.digest() == second.digest()


def test_embeddings_are_the_same_to_the_last_bit(digits, task, monkeypatch):
    models = train_or_load(task, Supervised("linear", task.training), release(digits), [None, None], INITIAL_POSTERIOR)
    made = cached_embeddings(task, models)
    assert np.array_equal(made[0], models[0].embed(task.features))
    plain = type(models[0]).embed  # on another machine
    monkeypatch.setattr(type(models[0]), "embed", lambda self, rows: plain(self, rows) * (1 + 1e-6))
    assert all(np.array_equal(*pair) for pair in zip(made, cached_embeddings(task, models), strict=True))
    assert not np.array_equal(made[0], cached_embeddings(replace(task, folder=None), models)[0])
    in_checkpoints = replace(task, folder=None, training=replace(task.training, checkpoint=task.folder))
    assert np.array_equal(made[0], cached_embeddings(in_checkpoints, models)[0])
