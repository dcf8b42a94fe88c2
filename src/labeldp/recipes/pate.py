"""PATE for labels (Malek et al. 2021, Tang et al. 2022): teachers vote on some rows, a student learns the answers.

Features are public, so all teachers share one label-free view of them and are heads on it: a thousand times cheaper
than a network each, and under the same guarantee.
"""

import numpy as np

from labeldp.errors import InputError
from labeldp.learn.augdescent import AugDescent
from labeldp.learn.fixmatch import FixMatch
from labeldp.learn.predictor import Predictor
from labeldp.mechanisms.voting import ConfidentGNMax
from labeldp.recipes.base import Ask, Steps, Task, recipe
from labeldp.recipes.votes import agreed, cluster_count, vote
from labeldp.releases.base import Release
from labeldp.teach.votes import TeacherVotes

_TESTS = (
    3.0  # noise of the threshold test, in units of that of the answers: tests are many, and need be right less often
)


@recipe(
    "pate-fm", "teachers on disjoint labels vote, noisily, on a few rows; a semi-supervised student learns the answers"
)
def pate_fm(task: Task, teachers: int | None = None, answers: int = 20, threshold: float = 0.5) -> Steps:
    """`answers` is for each class; `threshold` the share of teachers that must agree."""
    student, _ = yield from _student(task, teachers, answers, threshold)
    return student


@recipe("pate-fm-ssl", "the student of pate-fm labels every row, and FixMatch learns those labels")
def pate_fm_ssl(task: Task, teachers: int | None = None, answers: int = 20, threshold: float = 0.5) -> Steps:
    """Labelling all rows is free: the student is public."""
    student, told = yield from _student(task, teachers, answers, threshold)
    return task.learner(FixMatch).fit(task.features, _labelled(task, student, told), task.encoder)


@recipe("pate-fm-augdescent", "the student of pate-fm labels every row, and Aug-Descent learns those labels")
def pate_fm_augdescent(task: Task, teachers: int | None = None, answers: int = 20, threshold: float = 0.5) -> Steps:
    """Two networks sort the student's labels for each other."""
    student, told = yield from _student(task, teachers, answers, threshold)
    return task.learner(AugDescent).fit(task.features, _labelled(task, student, told), task.encoder)


@recipe("pate-fm-denoise", "the student's labels, kept where the vote of the row's cluster agrees, then FixMatch")
def pate_fm_denoise(
    task: Task, teachers: int | None = None, answers: int = 20, threshold: float = 0.5, clusters: int | None = None
) -> Steps:
    """The vote is taken among the student's labels."""
    student, told = yield from _student(task, teachers, answers, threshold)
    labelled = _labelled(task, student, told)
    kept = agreed(labelled, vote(labelled, task.clusters(cluster_count(task) if clusters is None else clusters)))
    return task.learner(FixMatch).fit(task.features, kept, task.encoder)


def _student(task: Task, teachers: int | None, answers: int, threshold: float):  # type: ignore[no-untyped-def]
    if not task.delta:
        raise InputError("Teachers' votes are told with Gaussian noise, which needs a delta above 0: 1e-6 for example.")
    if not 0 < threshold < 1 or answers < 1:
        raise InputError("threshold is a share of the teachers between 0 and 1, and answers at least 1.")
    learner = task.learner(FixMatch)
    rows = np.flatnonzero(task.rows)
    count = teachers or int(np.clip(rows.size // 200, 10, 1000))
    wanted = min(answers * len(task.space), rows.size)
    queries = np.random.default_rng(task.seed).permutation(rows)[: min(3 * wanted, rows.size)]
    mechanism = calibrated(task.epsilon, task.delta, threshold * count, queries.size, wanted)
    told = yield Ask(TeacherVotes(task.lifted, queries, count, mechanism, task.delta, seed=task.seed))
    if not told.active.any():
        raise InputError("No vote reached the threshold: lower it, or take fewer teachers. The budget is spent.")
    return learner.fit(task.features, told, task.encoder), told


def calibrated(epsilon: float, delta: float, threshold: float, queries: int, answers: int) -> ConfidentGNMax:
    """Return the votes with the least noise that stay within epsilon, whatever the teachers say."""

    def votes(sigma: float) -> ConfidentGNMax:
        return ConfidentGNMax(threshold, round(_TESTS * sigma, 3), round(sigma, 3), queries, answers)

    low, high = 0.5, 1e6
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        spent = votes(middle).loss(queries, answers).epsilon(delta)
        low, high = (middle, high) if spent > epsilon - 1e-6 else (low, middle)
    return votes(high)


def _labelled(task: Task, student: Predictor, told: Release) -> Release:
    codes = student.predict_proba(task.features).argmax(axis=1)
    return told.relabel(np.where(task.rows, codes, -1).astype(np.int32), derived_from=[student])
