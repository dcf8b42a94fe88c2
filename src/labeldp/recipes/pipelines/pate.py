"""PATE for labels (Malek et al. 2021, Zhang et al. 2021, Tang et al. 2022): teachers vote, a student learns.

Features are public, so all teachers may share one label-free view of them and be heads on it: a thousand times cheaper
than a network each, and under the same guarantee. With public features of other people, teachers are networks that
see their own rows alone, and whole records are protected, as in the papers on PATE.
"""

from dataclasses import replace
from typing import Any

from labeldp.learn.predictor import Predictor
from labeldp.recipes.cluster_votes import choose_n_clusters, keep_agreeing, plurality_vote
from labeldp.recipes.pipelines.teachers import (
    choose_confident_votes,
    choose_immutable_votes,
    choose_stable_votes,
    register_pate_recipe,
)
from labeldp.recipes.task import Task
from labeldp.releases.base import Release


def fixmatch(task: Task, votes: Release) -> Predictor:
    """The student of PATE-FM: the answers, and all other rows without labels."""
    student: Predictor = task.learner("FixMatch").fit(task.features, votes, task.encoder)
    return student


def ssl(task: Task, votes: Release) -> Predictor:
    """FixMatch on what the first student says of every row: free, since that student is public."""
    student: Predictor = task.learner("FixMatch").fit(task.features, _pseudo_label_all(task, votes), task.encoder)
    return student


def augdescent(task: Task, votes: Release) -> Predictor:
    """Two networks sort the first student's labels for each other."""
    student: Predictor = task.learner("AugDescent").fit(task.features, _pseudo_label_all(task, votes), task.encoder)
    return student


def denoise(task: Task, votes: Release) -> Predictor:
    """The first student's labels, where the vote of the row's cluster agrees."""
    labeled = _pseudo_label_all(task, votes)
    agreeing = keep_agreeing(labeled, plurality_vote(labeled, task.find_clusters(choose_n_clusters(task))))
    student: Predictor = task.learner("FixMatch").fit(task.features, agreeing, task.encoder)
    return student


def gan(task: Task, votes: Release, **settings: Any) -> Predictor:
    """A semi-supervised GAN, which learns with Adam."""
    learner = task.learner("SemiGAN", **settings)
    training = replace(
        learner.training,
        optimizer="adamw",
        learning_rate=1e-3,
        weight_decay=0.0,
        batch_size=min(100, learner.training.batch),
    )
    student: Predictor = replace(learner, training=training).fit(task.features, votes, task.encoder)
    return student


def _pseudo_label_all(task: Task, votes: Release) -> Release:
    student = fixmatch(task, votes)
    return votes.relabel(task.assign_pseudo_labels(student.predict_proba(task.features)), derived_from=[student])


_VOTE_SUMMARY = "teachers on disjoint labels vote, noisily, on a few rows; "
register_pate_recipe(
    "pate-fm", _VOTE_SUMMARY + "a semi-supervised student learns the answers", fixmatch, choose_confident_votes
)
register_pate_recipe(
    "pate-fm-ssl",
    "the student of pate-fm labels every row, and FixMatch learns those labels",
    ssl,
    choose_confident_votes,
)
register_pate_recipe(
    "pate-fm-augdescent",
    "the student of pate-fm labels every row, and Aug-Descent learns those",
    augdescent,
    choose_confident_votes,
)
register_pate_recipe(
    "pate-fm-denoise",
    "the labels of pate-fm, kept where the vote of the row's cluster agrees",
    denoise,
    choose_confident_votes,
)
register_pate_recipe("pate", _VOTE_SUMMARY + "a semi-supervised GAN learns the answers", gan, choose_confident_votes)
register_pate_recipe(
    "pate-coteaching",
    "as pate, with two discriminators that pick rows for each other",
    lambda task, votes: gan(task, votes, n_discriminators=2),
    choose_confident_votes,
)
register_pate_recipe(
    "pate-plus",
    "as pate-coteaching, among the rows on which the two disagree",
    lambda task, votes: gan(task, votes, n_discriminators=2, plus=True),
    choose_confident_votes,
)
register_pate_recipe(
    "pate-plus-plus",
    "as pate-plus, twice: the labels that both contradict most are left out the second time",
    lambda task, votes: gan(task, votes, n_discriminators=2, plus=True, remove_fraction=0.3),
    choose_confident_votes,
)
register_pate_recipe(
    "stable-vote", "exact winners where many votes would have to move; then as pate-fm", fixmatch, choose_stable_votes
)
register_pate_recipe(
    "immutable",
    "NOT PRIVATE, to be studied only: winners fixed by a large constant; then as pate-fm",
    fixmatch,
    choose_immutable_votes,
)
