"""`auto`: one set of releases, fixed by public facts, and the learner that a private score prefers."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from labeldp.errors import InputError
from labeldp.learn.classical import Classical
from labeldp.learn.ridge import Ridge
from labeldp.mechanisms import LinearQuery, RRWithPrior
from labeldp.mechanisms.bins import LossName
from labeldp.recipes.arithmetic import rare_right
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.candidates import Candidate, fit_all
from labeldp.recipes.clusters import noise_cluster
from labeldp.recipes.lp_mst import lp_mst
from labeldp.recipes.moments import is_faint, smooth_moments
from labeldp.recipes.numbers import auto_numbers, several_numbers
from labeldp.recipes.refine import begins_from_encoder, refine
from labeldp.recipes.shares import split_epsilon
from labeldp.recipes.task import Task
from labeldp.recipes.votes import chances
from labeldp.releases.base import Release
from labeldp.represent.clusters import averaged, neighbours

_ANSWERS_FROM = 1.0  # epsilon from which a row's own noisy label can say something that the sums do not
_QUIET = 3.0  # noise of the sums, in units of their sampling error, below which more budget hardly helps them
_FEW_CLASSES = 4  # boosted trees grow one tree for each class: for many classes they are slow and rarely better
_FEW_ROWS = 10_000  # with more, sums are quiet enough without the help of neighbours
_MANY_ROWS = 100_000  # above, it would take long to find the neighbours of all
_NEAR, _ROUNDS = 10, 2
_ROWS_A_CLASS = 500  # with fewer, a choice among simpler models is safer than many trainings one after another
_RARE = 0.05


def several(task: Task) -> bool:
    """Whether there will be models to choose from."""
    if task.space.step is not None:
        return several_numbers(task)
    if task.features.kind == "pairs" or _refines(task) or _drowned(task):
        return False
    return _of_few_rows(task) or budget_for_sums(task)[1] > 0


@recipe(
    "auto",
    "noisy sums for a first model; where epsilon allows, answers of the rows themselves, and the best learner",
    chooses=several,
    labels="any",
)
def auto(task: Task, loss: LossName = "squared") -> Steps:
    """Sums tell most for little, so they come first; they cannot tell more than a linear model holds.

    What they do not need goes on to randomized response among the classes that they leave open, from which trees and
    networks learn what is not linear. Which of the models is best is for a private choice on held-out rows. Noise
    can drown the sums; then sums of rows that are like their neighbours are heard, and, where noise is pure, votes of
    clusters, which are few numbers. Where the sums find that one of two classes is rare, most of the labels that
    randomized response would call so are not: then the rest goes to sums again. Many pictures with an encoder go
    another way, that of `refine`. Ids of people and items have no sums: there, randomized response in stages. Labels
    that are numbers, for which there is a `loss`, go the way of `auto_numbers`. Without torch, which is a public fact,
    no network is among the candidates, and drowned sums are learnt by logistic regression.
    """
    if task.space.step is not None:
        return (yield from auto_numbers(task, loss))
    if loss != "squared":
        raise InputError("A loss is chosen for numbers, and these labels are classes: leave it out.")
    if _refines(task):
        return (yield from refine(task))
    if task.features.kind == "pairs":
        return (yield from lp_mst(task))
    if _drowned(task):
        return (yield from (smooth_moments if task.delta else noise_cluster)(task.with_installed_model()))
    first, second = budget_for_sums(task)
    learner = task.learner("Supervised", targets="posteriors") if task.trains_networks else None
    near = neighbours(task.lifted, min(_NEAR, len(task.features) - 1)) if _of_few_rows(task) else None
    classical = _classical(task) if second else {}
    sums = yield Ask(LinearQuery(task.summed, first, task.delta))
    if second and _rare(task, sums, second):
        again = yield Ask(LinearQuery(task.summed, second), None, [sums])
        return task.on_points(Ridge(task.sum_lift).fit(task.points, again))
    models = [task.on_points(Ridge(task.sum_lift).fit(task.points, sums))]
    candidates = []
    if learner is not None and near is not None:
        smooth = partial(smoothed, task, sums, near)
        candidates.append(Candidate("a network", lambda: learner.fit(task.features, smooth(), task.encoder)))
    if second:
        noisy = yield Ask(RRWithPrior(second, chances(sums)), None, [sums])
        candidates += [
            Candidate(each, partial(classical[each].fit, task.features, noisy, models[0])) for each in classical
        ]
        if learner is not None:
            both = Release.concat(noisy, sums)
            candidates.append(Candidate("a network", partial(learner.fit, task.features, both, task.encoder)))
    return fit_all(task, candidates, models)


def _classical(task: Task) -> dict[str, Classical]:
    """Return the classifiers of scikit-learn that suit the features, with what they need of these."""
    found: dict[str, Any] = {}
    if task.features.kind != "images":
        found["logistic regression"] = LogisticRegression(C=0.1, max_iter=300)
    if task.features.kind == "table" and len(task.space) <= _FEW_CLASSES:
        trees = HistGradientBoostingClassifier(max_iter=100, min_samples_leaf=50, random_state=task.seed)
        found["boosted trees"] = trees
    learners = {name: Classical(each, 3) for name, each in found.items()}
    for name in list(learners)[-1:]:  # what this one sees, the others can see: one matrix is enough to hold
        learners[name] = learners[name].prepare(task.features, task.rows)
    return learners


def smoothed(task: Task, sums: Release, near: NDArray[np.int64]) -> Release:
    """Let near rows agree on their labels: noise in the sums bends a linear model, but not the neighbourhoods."""
    agreed = averaged(chances(sums), near, _ROUNDS)
    return sums.relabel(task.likeliest(agreed))


def _of_few_rows(task: Task) -> bool:
    """Whether a network learns from the sums of near rows, which are found among few rows."""
    task = task.whole
    return task.trains_networks and task.points.kind != "table" and 2 <= int(task.rows.sum()) <= _FEW_ROWS


def _rare(task: Task, sums: Release, epsilon: float) -> bool:
    """Whether a class is so rare that most of the rows which randomized response gives to it are others."""
    share = max(float(chances(sums)[task.rows].mean(axis=0).min()), 1e-9)
    return len(task.space) == 2 and share < _RARE and rare_right(epsilon, share) < 0.5


def _refines(task: Task) -> bool:
    """Whether there are pictures enough for networks to learn more from than their encoder knew."""
    return begins_from_encoder(task) and int(task.whole.rows.sum()) >= _ROWS_A_CLASS * len(task.space)


def _drowned(task: Task) -> bool:
    """Whether noise drowns the sums of rows as they are, and something else can be heard."""
    task = task.whole
    dense = task.points.kind != "table" and 1 < int(task.rows.sum()) <= _MANY_ROWS
    return dense and (is_faint(task) or not task.delta) and task.label_epsilon < enough_for_sums(task) / 2


def enough_for_sums(task: Task) -> float:
    """Return the epsilon of a label at which more would hardly help the sums, by rows, classes and columns.

    A sum over n rows of length l in D columns has a sampling error of about l sqrt(n / D (1 - 1/K) / K) a column.
    """
    task = task.whole
    rows, classes = int(task.rows.sum()), len(task.space)
    length = np.sqrt(np.einsum("ij,ij->", task.summed, task.summed, dtype=np.float64) / len(task.summed))
    error = length * np.sqrt(rows / task.sum_lift.columns * (1 - 1 / classes) / classes)
    one = LinearQuery(task.summed, 1.0, task.delta)
    return float(one.sigma / one.scale / (_QUIET * error))  # noise goes with 1 / epsilon


def budget_for_sums(task: Task) -> tuple[float, float]:
    """Return what sums get and what is left for randomized response, where that says something."""
    task = task.whole
    enough = enough_for_sums(task)
    # At less than this, randomized response says next to nothing about one row among so many classes.
    if task.label_epsilon < max(_ANSWERS_FROM, 2 * enough, enough + np.log(len(task.space)) / 2):
        return task.epsilon, 0.0
    return split_epsilon(task.epsilon, enough / task.label_epsilon)
