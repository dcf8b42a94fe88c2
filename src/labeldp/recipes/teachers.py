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
from labeldp.privacy.teachers.votes import TeacherVotes
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.polls import (
    ANSWERS_PER_CLASS,
    FEW,
    QUERIES_PER_ANSWER,
    agreed_by_all,
    confident_teachers,
    confident_votes,
    least_noise,
    most_teachers,
    stable_teachers,
    stable_votes,
)
from labeldp.recipes.task import Task, default_training
from labeldp.releases.base import Release

if TYPE_CHECKING:
    from labeldp.privacy.teachers.networks import Networks

Taught = Literal["auto", "heads", "networks"]

_CLAIMED = 250  # as many teachers as the near-zero-cost paper compares itself with


@dataclass(frozen=True)
class Poll:
    """What is asked of the teachers: how many answers are wanted, and of how many queries they may come."""

    task: Task
    teachers: int | None
    answers: int
    queries: int
    threshold: float

    @property
    def most(self) -> int:
        """The most teachers that still have two rows for each class, on average, and a user each."""
        most = most_teachers(int(self.task.rows.sum()), len(self.task.space))
        return most if self.task.users is None else min(most, np.unique(self.task.users[self.task.rows]).size)


Student = Callable[[Task, Release], Predictor]
Votes = Callable[[Poll], tuple[int, VoteMechanism]]


def with_teachers(name: str, summary: str, student: Student, votes: Votes) -> None:
    """Enter a recipe: teachers vote by `votes`, and `student` learns from what is told."""

    def steps(
        task: Task,
        teachers: int | None = None,
        answers: int = ANSWERS_PER_CLASS,
        threshold: float = 0.5,
        taught: Taught = "auto",
        engine: str = "processes",
    ) -> Steps:
        """`answers` is for each class, `threshold` the share of teachers that must agree.

        Teachers are `heads` on one label-free view of all rows, or `networks` of their own, trained by an `engine`.
        """
        if not 0 < threshold < 1 or answers < 1:
            raise InputError("threshold is a share of the teachers between 0 and 1, and answers at least 1.")
        asked = task.features if task.public is None else task.public
        rows = np.flatnonzero(task.rows) if task.public is None else np.arange(len(asked))
        whole = task.whole
        many = int(whole.rows.sum()) if whole.public is None else len(whole.public)
        wanted = min(answers * len(task.space), many)
        poll = Poll(whole, teachers, wanted, min(QUERIES_PER_ANSWER * wanted, many), threshold)
        replace(task, features=asked).learner("FixMatch")  # students are networks: it is said before anything is spent
        count, mechanism = votes(poll)
        queries = np.random.default_rng(task.seed).permutation(rows)[: poll.queries]
        told = yield Ask(teacher_votes(task, queries, count, mechanism, taught, engine))
        if (kept := _keep(task)) is not None:  # they are as secret as the labels, and what was told is in the ledger
            shutil.rmtree(kept, ignore_errors=True)
        if not told.active.any():
            raise InputError("No vote passed: lower the threshold, or take more teachers. The budget is spent.")
        owners = task.users if task.public is None else None  # nobody knows who owns public rows
        mine = np.isin(np.arange(len(asked)), rows)
        return student(replace(task, features=asked, rows=mine, public=None, users=owners), told)

    needs: Literal["nothing", "delta"] = "delta" if votes in (confident, stable) else "nothing"
    recipe(name, summary, asks_teachers=True, needs=needs, networks="by default")(steps)


def teacher_votes(
    task: Task, queries: NDArray[np.integer], count: int, mechanism: VoteMechanism, taught: Taught, engine: str
) -> TeacherVotes:
    """Return the request for votes on `queries`: rows of the task, or of its public features."""
    delta = task.delta if mechanism.loss(*mechanism.caps).epsilon(task.delta) < np.inf else 0.0
    common: dict[str, Any] = {"teachers": count, "votes": mechanism, "delta": delta, "seed": task.seed}
    common["users"] = task.users
    if task.public is not None:
        if taught == "heads" or task.encoder is not None:
            raise InputError(
                "What saw all rows, as heads or an encoder did, protects labels only: with public rows, take networks "
                "and no encoder."
            )
        own = _networks(task, engine, "own")
        return TeacherVotes(task.features, queries, public=task.public, taught=own, **common)
    if taught == "networks":
        return TeacherVotes(task.features, queries, taught=_networks(task, engine, "all"), **common)
    return TeacherVotes(task.lifted, queries, taught=Heads(), **common)


def _networks(task: Task, engine: str, sees: Literal["own", "all"]) -> "Networks":
    """Return teachers with networks of the task's kind; those that see all features learn from them without labels."""
    from labeldp.privacy.teachers.networks import Networks

    learner = task.learner("FixMatch" if sees == "all" else "Supervised")
    usual = default_training(task, device=learner.training.device)
    epochs = 30 if sees == "own" else learner.training.epochs
    training = replace(usual, epochs=epochs, batch=32, rate=0.05, compile=False)  # a teacher's training is short
    return Networks(replace(learner, training=training), sees, engine, keep=_keep(task), progress=_shown(task))


def _keep(task: Task) -> Path | None:
    """Return where finished teachers wait for a run that goes on, beside its checkpoints."""
    folder = None if task.training is None else task.training.checkpoint
    return folder / "teachers" if folder is not None and folder.is_dir() else None


def _shown(task: Task) -> bool:
    return task.training is not None and task.training.progress is True


def confident(poll: Poll) -> tuple[int, VoteMechanism]:
    """Confident-GNMax with the least noise within epsilon, and teachers enough to be heard above it."""
    task = poll.task
    votes = confident_votes(task.epsilon, task.delta, poll.queries, poll.answers)
    count = poll.teachers or confident_teachers(votes, poll.most)
    return count, replace(votes, threshold=poll.threshold * count)


def stable(poll: Poll) -> tuple[int, VoteMechanism]:
    """Exact winners of agreed queries; there must be teachers enough for a query to be far from another winner."""
    task = poll.task
    votes = stable_votes(task.epsilon, task.delta, poll.queries)
    needed = agreed_by_all(votes)
    count = poll.teachers or stable_teachers(votes, poll.most)
    if count < needed:
        raise InputError(
            f"Stable votes need {needed} teachers that all agree at this epsilon, and {count} is the most for "
            f"{int(task.rows.sum())} rows: raise epsilon, or take the recipe pate-fm."
        )
    return count, votes


def immutable(poll: Poll) -> tuple[int, VoteMechanism]:
    """NOT PRIVATE: the near-zero-cost votes, with noise for which its authors would claim epsilon."""
    task = poll.task
    count = poll.teachers or min(_CLAIMED, max(FEW, int(task.rows.sum()) // 200))

    def votes(scale: float) -> ImmutableArgmax:
        return ImmutableArgmax(round(scale, 3), poll.answers)

    return count, votes(least_noise(lambda scale: votes(scale).claimed(poll.answers).epsilon(task.delta), task.epsilon))
