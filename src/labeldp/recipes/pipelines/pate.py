"""PATE for labels (Malek et al. 2021, Zhang et al. 2021, Tang et al. 2022): teachers vote, a student learns.

Features are public, so all teachers may share one label-free view of them and be heads on it: a thousand times cheaper
than a network each, and under the same guarantee. With public features of other people, teachers are networks that
see their own rows alone, and whole records are protected, as in the papers on PATE.
"""

from dataclasses import replace
from typing import Any

from labeldp.learn.predictor import Predictor
from labeldp.recipes.task import Task
from labeldp.recipes.teachers import confident, immutable, stable, with_teachers
from labeldp.recipes.votes import agreed, cluster_count, vote
from labeldp.releases.base import Release


def fixmatch(task: Task, told: Release) -> Predictor:
    """The student of PATE-FM: the answers, and all other rows without labels."""
    student: Predictor = task.learner("FixMatch").fit(task.features, told, task.encoder)
    return student


def ssl(task: Task, told: Release) -> Predictor:
    """FixMatch on what the first student says of every row: free, since that student is public."""
    again: Predictor = task.learner("FixMatch").fit(task.features, _labelled(task, told), task.encoder)
    return again


def augdescent(task: Task, told: Release) -> Predictor:
    """Two networks sort the first student's labels for each other."""
    pair: Predictor = task.learner("AugDescent").fit(task.features, _labelled(task, told), task.encoder)
    return pair


def denoise(task: Task, told: Release) -> Predictor:
    """The first student's labels, where the vote of the row's cluster agrees."""
    labelled = _labelled(task, told)
    kept = agreed(labelled, vote(labelled, task.clusters(cluster_count(task))))
    again: Predictor = task.learner("FixMatch").fit(task.features, kept, task.encoder)
    return again


def gan(task: Task, told: Release, **settings: Any) -> Predictor:
    """A semi-supervised GAN, which learns with Adam."""
    learner = task.learner("SemiGAN", **settings)
    training = replace(
        learner.training, optimizer="adamw", rate=1e-3, decay=0.0, batch=min(100, learner.training.batch)
    )
    student: Predictor = replace(learner, training=training).fit(task.features, told, task.encoder)
    return student


def _labelled(task: Task, told: Release) -> Release:
    student = fixmatch(task, told)
    return told.relabel(task.likeliest(student.predict_proba(task.features)), derived_from=[student])


_VOTE = "teachers on disjoint labels vote, noisily, on a few rows; "
with_teachers("pate-fm", _VOTE + "a semi-supervised student learns the answers", fixmatch, confident)
with_teachers(
    "pate-fm-ssl", "the student of pate-fm labels every row, and FixMatch learns those labels", ssl, confident
)
with_teachers(
    "pate-fm-augdescent", "the student of pate-fm labels every row, and Aug-Descent learns those", augdescent, confident
)
with_teachers(
    "pate-fm-denoise", "the labels of pate-fm, kept where the vote of the row's cluster agrees", denoise, confident
)
with_teachers("pate", _VOTE + "a semi-supervised GAN learns the answers", gan, confident)
with_teachers(
    "pate-coteaching",
    "as pate, with two discriminators that pick rows for each other",
    lambda task, told: gan(task, told, discriminators=2),
    confident,
)
with_teachers(
    "pate-plus",
    "as pate-coteaching, among the rows on which the two disagree",
    lambda task, told: gan(task, told, discriminators=2, plus=True),
    confident,
)
with_teachers(
    "pate-plus-plus",
    "as pate-plus, twice: the labels that both contradict most are left out the second time",
    lambda task, told: gan(task, told, discriminators=2, plus=True, remove=0.3),
    confident,
)
with_teachers("stable-vote", "exact winners where many votes would have to move; then as pate-fm", fixmatch, stable)
with_teachers(
    "immutable",
    "NOT PRIVATE, to be studied only: winners fixed by a large constant; then as pate-fm",
    fixmatch,
    immutable,
)
