"""PATE for labels (Malek et al. 2021, Zhang et al. 2021, Tang et al. 2022): teachers vote, a student learns.

Features are public, so that all teachers can be heads on one label-free representation of them. Heads are a thousand
times cheaper than networks, under the same guarantee. With public features of other people, teachers are networks that
train on their own rows alone. The guarantee then protects whole records, as in the papers on PATE.
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
    """Train FixMatch on the answers of the teachers, and on all other rows without labels (PATE-FM)."""
    student: Predictor = task.learner("FixMatch").fit(task.features, votes, task.encoder)
    return student


def ssl(task: Task, votes: Release) -> Predictor:
    """Train FixMatch on the pseudo-labels of the first student for all rows, which is post-processing."""
    student: Predictor = task.learner("FixMatch").fit(task.features, _pseudo_label_all(task, votes), task.encoder)
    return student


def augdescent(task: Task, votes: Release) -> Predictor:
    """Train Aug-Descent on the pseudo-labels of the first student: two networks select labels for each other."""
    student: Predictor = task.learner("AugDescent").fit(task.features, _pseudo_label_all(task, votes), task.encoder)
    return student


def denoise(task: Task, votes: Release) -> Predictor:
    """Train FixMatch on the pseudo-labels of the first student that agree with the vote of the row's cluster."""
    labeled = _pseudo_label_all(task, votes)
    agreeing = keep_agreeing(labeled, plurality_vote(labeled, task.find_clusters(choose_n_clusters(task))))
    student: Predictor = task.learner("FixMatch").fit(task.features, agreeing, task.encoder)
    return student


def gan(task: Task, votes: Release, **settings: Any) -> Predictor:
    """Train a semi-supervised GAN with Adam on the answers of the teachers."""
    learner = task.learner("SemiGAN", **settings)
    training = replace(
        learner.training,
        optimizer="adamw",
        learning_rate=1e-3,
        weight_decay=0.0,
        batch_size=min(100, learner.training.batch_size),
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
    "the student of pate-fm labels all rows, and FixMatch learns these labels",
    ssl,
    choose_confident_votes,
)
register_pate_recipe(
    "pate-fm-augdescent",
    "the student of pate-fm labels all rows, and Aug-Descent learns these labels",
    augdescent,
    choose_confident_votes,
)
register_pate_recipe(
    "pate-fm-denoise",
    "the labels of pate-fm, retained where the vote of the row's cluster agrees",
    denoise,
    choose_confident_votes,
)
register_pate_recipe("pate", _VOTE_SUMMARY + "a semi-supervised GAN learns the answers", gan, choose_confident_votes)
register_pate_recipe(
    "pate-coteaching",
    "as pate, with two discriminators that select rows for each other",
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
    "as pate-plus, twice: the second time without the labels that both discriminators contradict most",
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
