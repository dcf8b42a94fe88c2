"""The common part of recipes with teachers: the number of teachers, their votes, and the options."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.learn.predictor import Predictor
from labeldp.privacy.mechanisms.stable import ImmutableArgmax
from labeldp.privacy.mechanisms.vote_aggregators import VoteAggregator
from labeldp.privacy.teachers.heads import Heads
from labeldp.privacy.teachers.teacher_votes import TeacherVotes
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task, default_training
from labeldp.recipes.vote_calibration import (
    ANSWERS_PER_CLASS,
    MIN_TEACHERS,
    QUERIES_PER_ANSWER,
    calibrate_confident_votes,
    calibrate_noise,
    calibrate_stable_votes,
    count_confident_teachers,
    count_stable_teachers,
    max_teachers,
    min_unanimous_teachers,
)
from labeldp.releases.base import Release

if TYPE_CHECKING:
    from labeldp.privacy.teachers.networks import Networks

TeacherKind = Literal["auto", "heads", "networks"]

# Teachers of the unproven immutable votes, as in the comparison of the near-zero-cost paper.
_N_CLAIMED_TEACHERS = 250


@dataclass(frozen=True)
class QueryPlan:
    """The queries to the teachers.

    Attributes:
        task: The task.
        n_teachers: The number of teachers; None for a number that suits noise and rows.
        n_answers: The number of answers that are requested.
        n_queries: The number of queries from which the answers come.
        threshold: The share of the teachers that must agree on an answer.
    """

    task: Task
    n_teachers: int | None
    n_answers: int
    n_queries: int
    threshold: float

    @property
    def teacher_limit(self) -> int:
        """The most teachers with two rows for each class on average, and at least one user for each teacher."""
        limit = max_teachers(int(self.task.row_mask.sum()), len(self.task.space))
        return limit if self.task.users is None else min(limit, np.unique(self.task.users[self.task.row_mask]).size)


Student = Callable[[Task, Release], Predictor]
VoteChooser = Callable[[QueryPlan], tuple[int, VoteAggregator]]


def register_pate_recipe(name: str, summary: str, student: Student, choose_votes: VoteChooser) -> None:
    """Register a recipe: teachers vote by the mechanism of `choose_votes`, and `student` learns from their answers."""

    def steps(
        task: Task,
        teachers: int | None = None,
        answers: int = ANSWERS_PER_CLASS,
        threshold: float = 0.5,
        teacher_kind: TeacherKind = "auto",
        engine: str = "processes",
    ) -> Steps:
        """Release the votes of teachers on some rows, then train a student on the answers.

        Args:
            task: The task.
            teachers: The number of teachers; None for a number that suits noise and rows.
            answers: The number of answers for each class.
            threshold: The share of the teachers that must agree on an answer.
            teacher_kind: "heads" on one label-free representation of all rows, or "networks" of their own.
            engine: How networks are trained.

        Returns:
            The student.

        Raises:
            InputError: An option does not suit the task, or no query was answered.
        """
        if not 0 < threshold < 1 or answers < 1:
            raise InputError("threshold is a share of the teachers between 0 and 1, and answers at least 1.")
        queried = task.features if task.public is None else task.public
        row_ids = np.flatnonzero(task.row_mask) if task.public is None else np.arange(len(queried))
        full_task = task.full_task
        n_available = int(full_task.row_mask.sum()) if full_task.public is None else len(full_task.public)
        n_answers = min(answers * len(task.space), n_available)
        query_plan = QueryPlan(
            full_task, teachers, n_answers, min(QUERIES_PER_ANSWER * n_answers, n_available), threshold
        )
        replace(task, features=queried).learner("FixMatch")  # fails before the first charge if the student cannot train
        n_teachers, mechanism = choose_votes(query_plan)
        queries = np.random.default_rng(task.seed).permutation(row_ids)[: query_plan.n_queries]
        votes = yield Request(make_teacher_votes(task, queries, n_teachers, mechanism, teacher_kind, engine))
        checkpoint = _teacher_checkpoint(task)
        if checkpoint is not None:  # teachers are as secret as the labels, and their votes are in the ledger
            shutil.rmtree(checkpoint, ignore_errors=True)
        if not votes.row_mask.any():
            raise InputError("No vote passed: lower the threshold, or take more teachers. The budget is spent.")
        users = task.users if task.public is None else None  # the owners of public rows are unknown
        row_mask = np.isin(np.arange(len(queried)), row_ids)
        return student(replace(task, features=queried, row_mask=row_mask, public=None, users=users), votes)

    needs: Literal["nothing", "delta"] = (
        "delta" if choose_votes in (choose_confident_votes, choose_stable_votes) else "nothing"
    )
    recipe(name, summary, uses_teachers=True, needs=needs, networks="by default")(steps)


def make_teacher_votes(
    task: Task,
    queries: NDArray[np.integer],
    n_teachers: int,
    mechanism: VoteAggregator,
    teacher_kind: TeacherKind,
    engine: str,
) -> TeacherVotes:
    """Return the mechanism for votes on `queries`: ids of rows of the task, or of its public features."""
    delta = task.delta if mechanism.loss(*mechanism.caps).epsilon(task.delta) < np.inf else 0.0
    settings: dict[str, Any] = {"n_teachers": n_teachers, "aggregator": mechanism, "delta": delta, "seed": task.seed}
    settings["users"] = task.users
    if task.public is not None:
        if teacher_kind == "heads" or task.encoder is not None:
            raise InputError(
                "Heads and an encoder are trained on all rows, which protects labels only: with public rows, take "
                "networks and no encoder."
            )
        trainer = _make_network_teachers(task, engine, "own")
        return TeacherVotes(task.features, queries, public=task.public, trainer=trainer, **settings)
    if teacher_kind == "networks":
        return TeacherVotes(task.features, queries, trainer=_make_network_teachers(task, engine, "all"), **settings)
    return TeacherVotes(task.normalized, queries, trainer=Heads(), **settings)


def _make_network_teachers(task: Task, engine: str, view: Literal["own", "all"]) -> "Networks":
    """Return teachers with the task's networks. With the view "all", they also learn from unlabeled features."""
    from labeldp.privacy.teachers.networks import Networks

    learner = task.learner("FixMatch" if view == "all" else "Supervised")
    default = default_training(task, device=learner.training.device)
    epochs = 30 if view == "own" else learner.training.epochs
    training = replace(default, epochs=epochs, batch_size=32, learning_rate=0.05, compile=False)  # short
    return Networks(
        replace(learner, training=training),
        view,
        engine,
        checkpoint_folder=_teacher_checkpoint(task),
        progress=_shows_progress(task),
    )


def _teacher_checkpoint(task: Task) -> Path | None:
    """Return the folder of trained teachers for an interrupted run, beside its checkpoints."""
    folder = None if task.training is None else task.training.checkpoint
    return folder / "teachers" if folder is not None and folder.is_dir() else None


def _shows_progress(task: Task) -> bool:
    return task.training is not None and task.training.progress is True


def choose_confident_votes(query_plan: QueryPlan) -> tuple[int, VoteAggregator]:
    """Return the number of teachers, and Confident-GNMax with the least noise within epsilon."""
    task = query_plan.task
    votes = calibrate_confident_votes(task.epsilon, task.delta, query_plan.n_queries, query_plan.n_answers)
    n_teachers = query_plan.n_teachers or count_confident_teachers(votes, query_plan.teacher_limit)
    return n_teachers, replace(votes, threshold=query_plan.threshold * n_teachers)


def choose_stable_votes(query_plan: QueryPlan) -> tuple[int, VoteAggregator]:
    """Return the number of teachers, and stable votes, for which a query must be far from another winner."""
    task = query_plan.task
    votes = calibrate_stable_votes(task.epsilon, task.delta, query_plan.n_queries)
    n_needed = min_unanimous_teachers(votes)
    n_teachers = query_plan.n_teachers or count_stable_teachers(votes, query_plan.teacher_limit)
    if n_teachers < n_needed:
        raise InputError(
            f"Stable votes need {n_needed} teachers that all agree at this epsilon, and {n_teachers} is the most for "
            f"{int(task.row_mask.sum())} rows: raise epsilon, or take the recipe pate-fm."
        )
    return n_teachers, votes


def choose_immutable_votes(query_plan: QueryPlan) -> tuple[int, VoteAggregator]:
    """Return the near-zero-cost votes, which are NOT PRIVATE, with the noise for which their authors claim epsilon."""
    task = query_plan.task
    n_teachers = query_plan.n_teachers or min(_N_CLAIMED_TEACHERS, max(MIN_TEACHERS, int(task.row_mask.sum()) // 200))

    def with_noise(scale: float) -> ImmutableArgmax:
        return ImmutableArgmax(round(scale, 3), query_plan.n_answers)

    return n_teachers, with_noise(
        calibrate_noise(
            lambda scale: with_noise(scale).claimed_loss(query_plan.n_answers).epsilon(task.delta), task.epsilon
        )
    )
