"""What the recipes with teachers share: how many teachers, which votes, and one list of settings for all of them."""

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
from labeldp.privacy.mechanisms.voting import VoteMechanism
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

_N_CLAIMED_TEACHERS = 250  # as many teachers as the near-zero-cost paper compares itself with


@dataclass(frozen=True)
class Poll:
    """What is asked of the teachers: how many answers are wanted, and of how many queries they may come."""

    task: Task
    n_teachers: int | None
    n_answers: int
    n_queries: int
    threshold: float

    @property
    def teacher_limit(self) -> int:
        """The most teachers that still have two rows for each class, on average, and a user each."""
        limit = max_teachers(int(self.task.row_mask.sum()), len(self.task.space))
        return limit if self.task.users is None else min(limit, np.unique(self.task.users[self.task.row_mask]).size)


Student = Callable[[Task, Release], Predictor]
VoteChooser = Callable[[Poll], tuple[int, VoteMechanism]]


def register_pate_recipe(name: str, summary: str, student: Student, choose_votes: VoteChooser) -> None:
    """Enter a recipe: teachers vote by `votes`, and `student` learns from what is told."""

    def steps(
        task: Task,
        teachers: int | None = None,
        answers: int = ANSWERS_PER_CLASS,
        threshold: float = 0.5,
        teacher_kind: TeacherKind = "auto",
        engine: str = "processes",
    ) -> Steps:
        """`answers` is for each class, `threshold` the share of teachers that must agree.

        Teachers are `heads` on one label-free view of all rows, or `networks` of their own, trained by an `engine`.
        """
        if not 0 < threshold < 1 or answers < 1:
            raise InputError("threshold is a share of the teachers between 0 and 1, and answers at least 1.")
        queried = task.features if task.public is None else task.public
        row_ids = np.flatnonzero(task.row_mask) if task.public is None else np.arange(len(queried))
        full_task = task.full_task
        n_available = int(full_task.row_mask.sum()) if full_task.public is None else len(full_task.public)
        n_answers = min(answers * len(task.space), n_available)
        poll = Poll(full_task, teachers, n_answers, min(QUERIES_PER_ANSWER * n_answers, n_available), threshold)
        replace(task, features=queried).learner(
            "FixMatch"
        )  # students are networks: it is said before anything is spent
        n_teachers, mechanism = choose_votes(poll)
        queries = np.random.default_rng(task.seed).permutation(row_ids)[: poll.n_queries]
        votes = yield Request(make_teacher_votes(task, queries, n_teachers, mechanism, teacher_kind, engine))
        if (
            checkpoint := _teacher_checkpoint(task)
        ) is not None:  # they are as secret as the labels, and what was told is in the ledger
            shutil.rmtree(checkpoint, ignore_errors=True)
        if not votes.active.any():
            raise InputError("No vote passed: lower the threshold, or take more teachers. The budget is spent.")
        users = task.users if task.public is None else None  # nobody knows who owns public rows
        row_mask = np.isin(np.arange(len(queried)), row_ids)
        return student(replace(task, features=queried, row_mask=row_mask, public=None, users=users), votes)

    needs: Literal["nothing", "delta"] = (
        "delta" if choose_votes in (choose_confident_votes, choose_stable_votes) else "nothing"
    )
    recipe(name, summary, asks_teachers=True, needs=needs, networks="by default")(steps)


def make_teacher_votes(
    task: Task,
    queries: NDArray[np.integer],
    n_teachers: int,
    mechanism: VoteMechanism,
    teacher_kind: TeacherKind,
    engine: str,
) -> TeacherVotes:
    """Return the request for votes on `queries`: rows of the task, or of its public features."""
    delta = task.delta if mechanism.loss(*mechanism.caps).epsilon(task.delta) < np.inf else 0.0
    settings: dict[str, Any] = {"n_teachers": n_teachers, "votes": mechanism, "delta": delta, "seed": task.seed}
    settings["users"] = task.users
    if task.public is not None:
        if teacher_kind == "heads" or task.encoder is not None:
            raise InputError(
                "What saw all rows, as heads or an encoder did, protects labels only: with public rows, take networks "
                "and no encoder."
            )
        trainer = _make_network_teachers(task, engine, "own")
        return TeacherVotes(task.features, queries, public=task.public, trainer=trainer, **settings)
    if teacher_kind == "networks":
        return TeacherVotes(task.features, queries, trainer=_make_network_teachers(task, engine, "all"), **settings)
    return TeacherVotes(task.normalized, queries, trainer=Heads(), **settings)


def _make_network_teachers(task: Task, engine: str, view: Literal["own", "all"]) -> "Networks":
    """Return teachers with networks of the task's kind; those that see all features learn from them without labels."""
    from labeldp.privacy.teachers.networks import Networks

    learner = task.learner("FixMatch" if view == "all" else "Supervised")
    default = default_training(task, device=learner.training.device)
    epochs = 30 if view == "own" else learner.training.epochs
    training = replace(
        default, epochs=epochs, batch_size=32, learning_rate=0.05, compile=False
    )  # a teacher's training is short
    return Networks(
        replace(learner, training=training),
        view,
        engine,
        checkpoint_folder=_teacher_checkpoint(task),
        progress=_shows_progress(task),
    )


def _teacher_checkpoint(task: Task) -> Path | None:
    """Return where finished teachers wait for a run that goes on, beside its checkpoints."""
    folder = None if task.training is None else task.training.checkpoint
    return folder / "n_teachers" if folder is not None and folder.is_dir() else None


def _shows_progress(task: Task) -> bool:
    return task.training is not None and task.training.progress is True


def choose_confident_votes(poll: Poll) -> tuple[int, VoteMechanism]:
    """Confident-GNMax with the least noise within epsilon, and teachers enough to be heard above it."""
    task = poll.task
    votes = calibrate_confident_votes(task.epsilon, task.delta, poll.n_queries, poll.n_answers)
    n_teachers = poll.n_teachers or count_confident_teachers(votes, poll.teacher_limit)
    return n_teachers, replace(votes, threshold=poll.threshold * n_teachers)


def choose_stable_votes(poll: Poll) -> tuple[int, VoteMechanism]:
    """Exact winners of agreed queries; there must be teachers enough for a query to be far from another winner."""
    task = poll.task
    votes = calibrate_stable_votes(task.epsilon, task.delta, poll.n_queries)
    n_needed = min_unanimous_teachers(votes)
    n_teachers = poll.n_teachers or count_stable_teachers(votes, poll.teacher_limit)
    if n_teachers < n_needed:
        raise InputError(
            f"Stable votes need {n_needed} teachers that all agree at this epsilon, and {n_teachers} is the most for "
            f"{int(task.row_mask.sum())} rows: raise epsilon, or take the recipe pate-fm."
        )
    return n_teachers, votes


def choose_immutable_votes(poll: Poll) -> tuple[int, VoteMechanism]:
    """NOT PRIVATE: the near-zero-cost votes, with noise for which its authors would claim epsilon."""
    task = poll.task
    n_teachers = poll.n_teachers or min(_N_CLAIMED_TEACHERS, max(MIN_TEACHERS, int(task.row_mask.sum()) // 200))

    def with_noise(scale: float) -> ImmutableArgmax:
        return ImmutableArgmax(round(scale, 3), poll.n_answers)

    return n_teachers, with_noise(
        calibrate_noise(lambda scale: with_noise(scale).claimed_loss(poll.n_answers).epsilon(task.delta), task.epsilon)
    )
