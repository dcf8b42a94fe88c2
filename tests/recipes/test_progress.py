import pickle

import numpy as np
import polars as pl
import pytest

import labeldp as ldp
from labeldp.data.tables import Table
from labeldp.recipes import Task, all_rows, train
from labeldp.recipes.progress import Progress

SPACE = ldp.LabelSpace(["no", "yes"])


def test_steps_are_counted_up_to_the_plan():
    seen = []
    progress = Progress(lambda *how: seen.append(how))
    progress.step()
    progress.add_steps(1)
    progress.add_steps(1)
    progress.step()
    progress.step()
    progress.step()
    assert seen == [(0, 1), (0, 2), (1, 2), (2, 2)]
    progress.restart()
    assert (progress.n_done, progress.n_planned) == (0, 0)
    assert len(seen) == 4


def test_progress_can_be_pickled_with_its_task():
    assert pickle.loads(pickle.dumps(Progress())) == Progress()


@pytest.mark.parametrize(
    ("recipe", "options", "epsilon", "steps"),
    [
        ("additive", {"crosses": 0}, 1.0, 1),
        ("additive", {"crosses": 2, "cross": "a,b"}, 1.0, 4),
        ("auto", {}, 6.0, 2),  # effects of columns, and boosted trees
        ("randres", {}, 6.0, 0),
    ],
)
def test_recipes_do_the_steps_that_they_plan_and_a_rehearsal_shows_none(recipe, options, epsilon, steps):
    x = np.random.default_rng(0).normal(size=(4000, 3))
    table = Table.fit(pl.DataFrame(dict(zip("abc", x.T, strict=True))))
    vault = ldp.Vault(np.where(x[:, 0] > 0, "yes", "no"), SPACE, ldp.Budget(epsilon, 1e-6))
    seen = []
    model = "logistic" if recipe == "randres" else "auto"
    from labeldp.recipes.models import find_model

    task = Task(
        table, SPACE, all_rows(4000), epsilon, 1e-6, find_model(model), progress=Progress(lambda *s: seen.append(s))
    )
    for _ in range(2):  # also where all is in the ledger already
        seen.clear()
        train(vault, task, recipe, options)
        assert [done for done, planned in seen if planned == steps and done] == list(range(1, steps + 1))
        assert all(done <= planned <= steps for done, planned in seen)
        assert (seen[-1] if seen else (0, 0)) == (steps, steps)
