from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scripted import Seeded

import labeldp as ldp
from labeldp.data import Embeddings, Table
from labeldp.learn import Supervised, Training
from labeldp.learn.additive.log_linear import LogLinear
from labeldp.learn.regression import Regression
from labeldp.learn.short_training import is_shortened
from labeldp.learn.sklearn_learner import SklearnLearner
from labeldp.recipes.candidates import Candidate, fit_candidates
from labeldp.recipes.held_out import all_rows
from labeldp.recipes.task import Task
from labeldp.recipes.training import train, train_best

GENERATOR = np.random.default_rng(0)
NUMBERS = GENERATOR.normal(size=(1500, 3))
TABLE = Table.fit(pl.DataFrame(NUMBERS, schema=["a", "b", "c"]))
LABELS = (NUMBERS[:, 0] * NUMBERS[:, 1] > 0).astype(int)


def vault_and_task(labels=LABELS, space=None, epsilon=20.0):
    space = space or ldp.LabelSpace([0, 1])
    vault = ldp.Vault(labels, space, ldp.Budget(epsilon))
    vault._bits = Seeded(0)
    task = Task(TABLE, space, all_rows(1500), epsilon, training=Training(epochs=1, device="cpu"))
    return vault, task


def failing(fit, name, problem=IndexError):
    """Return a method that fails, outside of rehearsals, for estimators of one kind."""

    def tried(self, *given):
        estimator = getattr(self, "classifier", None) or getattr(self, "regressor", None)
        if name in type(estimator).__name__ and not is_shortened():
            raise problem("of 3 rows of label 1")
        return fit(self, *given)

    return tried


def embedded():
    """The vault, and the task with embeddings, of which `auto` makes four models."""
    vault, task = vault_and_task()
    return vault, replace(task, features=Embeddings(NUMBERS))


def test_a_candidate_that_fails_after_a_release_is_left_out_with_a_note(monkeypatch):
    def fail(self, *given):
        if not is_shortened():
            raise IndexError("of 3 rows of label 1")
        return fit(self, *given)

    fit = Supervised.fit
    monkeypatch.setattr(Supervised, "fit", fail)
    trained = train(*embedded(), "auto")
    assert trained.n_candidates == 2  # of four, two of which are networks
    assert trained.notes == ("A candidate was left out: a network could not be trained (IndexError).",)
    assert trained.notes[0] in trained.to_json()["warnings"]
    assert trained.guarantee.epsilon <= 20.0
    monkeypatch.undo()
    assert not train(*embedded(), "auto").notes


def test_so_is_one_of_the_regressors(monkeypatch):
    monkeypatch.setattr(Regression, "fit", failing(Regression.fit, "HistGradientBoosting"))
    space = ldp.LabelSpace.range(-4, 4, 0.5)
    vault, task = vault_and_task(np.clip(NUMBERS[:, 0], -4, 4), space)
    trained = train(vault, task, "auto", {"loss": "absolute"})
    assert trained.n_candidates == 3
    assert trained.notes == ("A candidate was left out: boosted trees could not be trained (IndexError).",)


def test_a_candidate_whose_probabilities_are_no_numbers_is_left_out(monkeypatch):
    fit = LogLinear.refine

    def diverged(self, *given):
        model = fit(self, *given)
        return model if is_shortened() else replace(model, coefficients=model.coefficients * np.nan)

    monkeypatch.setattr(LogLinear, "refine", diverged)
    trained = train(*embedded(), "auto")
    assert trained.n_candidates == 3
    assert trained.notes[0].startswith("A candidate was left out: LogLinearModel could not be trained (")


def test_a_setting_of_a_search_that_fails_is_left_out(monkeypatch):
    monkeypatch.setattr(SklearnLearner, "fit", failing(SklearnLearner.fit, "LogisticRegression"))
    vault, task = vault_and_task()
    tasks = [replace(task, model=model) for model in ("logistic", "trees", "linear")]
    trained = train_best(vault, tasks, "randres", [{}, {}, {}])
    assert trained.n_candidates == 2
    assert trained.variant in (1, 2)
    assert trained.notes == ("A candidate was left out: setting 1 of 3 could not be trained (IndexError).",)


def test_the_last_failure_is_raised_where_nothing_is_left():
    def fail():
        raise KeyError

    task = SimpleNamespace(notes=[])
    with pytest.raises(KeyError):
        fit_candidates(task, [Candidate("one", fail), Candidate("two", fail)])
    assert fit_candidates(task, [Candidate("one", fail), Candidate("two", lambda: "model")]) == ["model"]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, MemoryError, ldp.BudgetExceeded])
def test_what_is_no_matter_of_the_candidate_ends_the_run(problem):
    def fail():
        raise problem

    with pytest.raises(problem):
        fit_candidates(SimpleNamespace(notes=[]), [Candidate("one", lambda: "model"), Candidate("two", fail)])
