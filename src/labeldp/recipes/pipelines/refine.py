"""Refinement of networks for images from a label-free encoder: noisy sums, SoftMatch and randomized response."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import softmax

from labeldp.core.errors import InputError
from labeldp.core.label_space import MISSING
from labeldp.data.embeddings import Embeddings
from labeldp.data.row_normalizer import RowNormalizer
from labeldp.learn.training import Training
from labeldp.privacy.mechanisms import GroupHistogram, LinearQuery, RRMaxInformation
from labeldp.privacy.mechanisms.base import divide_epsilon
from labeldp.recipes.budget_split import CLUSTER_COUNTS_BELOW, split_refine_epsilon
from labeldp.recipes.cached_models import cached_embeddings, train_or_load
from labeldp.recipes.cluster_votes import cluster_class_posterior, select_confident_rows
from labeldp.recipes.pipelines.moments import needs_smoothing
from labeldp.recipes.registry import recipe
from labeldp.recipes.request import Request, Steps
from labeldp.recipes.task import Task
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.moments import NoisyMoments, to_probabilities
from labeldp.representation.clusters import kmeans
from labeldp.representation.smooth import smooth_rows

if TYPE_CHECKING:
    from labeldp.learn.model import Model

# Confidence of pseudo-labels. A network with a higher confidence can contradict them.
_PSEUDO_LABEL_CONFIDENCE = 0.95


@recipe(
    "refine",
    "sums over an encoder, then SoftMatch; where epsilon allows, sums over its embeddings, and again; from epsilon "
    "1.5 the most informative randomized response, and CrossFit",
    needs="encoder",
    networks="by default",
)
def refine(task: Task, rows_per_class: int = 1000, clusters: int = 100) -> Steps:
    """Release sums over the encoder's embeddings, and refine networks from them.

    1. Release sums of the embeddings by class. Their linear model is the head of the networks' starts.
    2. Train SoftMatch on the most confident rows of the linear model, spread over clusters, as labeled rows.
    3. Release sums over the embeddings of the encoder and the network together, and train the next network on their
       posterior. Repeat where epsilon allows.
    4. From epsilon 1.5, release randomized response among the classes of the posterior with the rest of epsilon, and
       combine it with the posterior by CrossFit.
    5. Train the last network on the final posterior.

    All networks start from the encoder. If several encoders are concatenated, there is a network for each of them
    before the last one.

    Args:
        task: The task. The features are images, and there is an encoder.
        rows_per_class: The number of pseudo-labels of each class for SoftMatch.
        clusters: The number of clusters over which pseudo-labels are spread.

    Returns:
        The last network.

    Raises:
        InputError: An option is out of range, or there is no encoder of images.
    """
    if rows_per_class < 1 or clusters < 1:
        raise InputError("refine needs at least one row a class and one cluster.")
    from labeldp.learn.encoded import attach_linear_head, concat_embeddings, split_encoder

    encoders = split_encoder(_require_encoder(task))
    final_learner = task.learner("Supervised", targets="posteriors", augment="strong")
    next_learner = final_learner.with_training(epochs=_shorten_epochs(final_learner.training.epochs, 3))
    softmatch = task.learner("SoftMatch", ema_decay=0.998)
    softmatch = softmatch.with_training(
        learning_rate=final_learner.training.learning_rate / 5, epochs=_shorten_epochs(final_learner.training.epochs, 5)
    )
    mean_rows_per_class = int(task.full_task.row_mask.sum()) / len(task.space)
    (first_epsilon, *later_epsilons), response_epsilon = split_refine_epsilon(
        task.epsilon, mean_rows_per_class, task.full_task.labels_per_user
    )
    task = replace(task, delta=divide_epsilon(task.delta, 1 + len(later_epsilons)))
    # 1. Sums over the encoder's embeddings, or counts of clusters, whose linear model is the head of all starts.
    embeddings = cached_embeddings(task, encoders)
    if not later_epsilons and task.full_task.signal_strength(first_epsilon) < CLUSTER_COUNTS_BELOW:
        result = yield from _query_balanced_clusters(task)
    else:
        result = yield from _query_sums(task, embeddings, first_epsilon)
    starts = [
        attach_linear_head(encoder, _fit_linear_model(task, Embeddings(own_embeddings), result))
        for encoder, own_embeddings in zip(encoders, embeddings, strict=True)
    ]
    # 2. SoftMatch on the pseudo-labels of the most confident rows.
    groups = kmeans(result.query_rows, min(clusters, len(result.query_rows)), task.seed)
    codes = select_confident_rows(result.posterior, groups, rows_per_class)
    pseudo_labels = result.sums.relabel(
        np.where(task.row_mask, codes, MISSING).astype(np.int32), _PSEUDO_LABEL_CONFIDENCE
    )
    initial_posterior = result.posterior  # all starts are functions of it and the encoder
    first_learner = softmatch.with_progress_name("first networks")
    networks = train_or_load(task, first_learner, pseudo_labels, starts, initial_posterior)
    # 3. Sums over the embeddings of the encoder and of all networks so far, and the next networks.
    for round_index, epsilon in enumerate(later_epsilons):
        if round_index:
            posterior = _posterior_of_task_rows(task, result)
            middle_learner = next_learner.with_progress_name("next networks")
            networks = train_or_load(task, middle_learner, posterior, starts, initial_posterior)
        embeddings = [*embeddings, *cached_embeddings(task, networks)]
        result = yield from _query_sums(task, embeddings, epsilon, [result.sums])
    # 4. Randomized response, combined with the posterior of the sums.
    if response_epsilon:
        responses = yield Request(RRMaxInformation(response_epsilon, result.posterior), None, [result.sums])
        posterior = _combine_responses(task, Embeddings(concat_embeddings(embeddings)), result, responses)
    elif later_epsilons:
        posterior = _posterior_of_task_rows(task, result)
    elif len(networks) == 1:
        return networks[0]
    else:
        probabilities = np.mean([network.predict_proba(task.features) for network in networks], axis=0)
        posterior = result.sums.with_posterior(probabilities * task.row_mask[:, None], derived_from=networks)
    # 5. The last network. Sums have the same errors for similar rows; in experiments, a short training learned less of
    # these errors than a long one.
    last_learner = (final_learner if response_epsilon else next_learner).with_progress_name("last network")
    return last_learner.fit(task.features, posterior, starts[0])


def _shorten_epochs(epochs: int, factor: int) -> int:
    """Return fewer epochs, for a training that starts from a good network or gives an intermediate one."""
    return max(epochs // factor, min(epochs, 10))


@dataclass(frozen=True, eq=False)
class _QueryResult:
    """Sums over embeddings, or counts of clusters, and the posterior of each row."""

    query_rows: NDArray[np.float32]
    sums: NoisyMoments | NoisyCounts
    posterior: NDArray[np.float64]


def _query_sums(
    task: Task, embeddings: Sequence[NDArray[np.float32]], epsilon: float, derived_from: Sequence[Release] = ()
) -> Generator[Request, Any, _QueryResult]:
    """Request sums over embeddings, which may be derived from earlier releases."""
    from labeldp.learn.encoded import concat_embeddings

    points, query_task = Embeddings(concat_embeddings(embeddings)), replace(task, epsilon=epsilon)
    query_rows = (
        smooth_rows(points, query_task.n_columns)
        if needs_smoothing(query_task)
        else RowNormalizer.fit(points, n_columns=query_task.n_columns)(points)
    )
    sums = yield Request(LinearQuery(query_rows, epsilon, task.delta), None, derived_from)
    return _QueryResult(query_rows, sums, calibrate(query_rows, sums))


def _query_balanced_clusters(task: Task) -> Generator[Request, Any, _QueryResult]:
    """Request label counts of as many balanced clusters as classes, which are found without labels."""
    memberships = task.cluster_memberships(len(task.space))
    counts = yield Request(GroupHistogram(memberships.argmax(axis=1), task.epsilon))
    return _QueryResult(task.normalized, counts, cluster_class_posterior(counts, memberships))


def _posterior_of_task_rows(task: Task, result: _QueryResult) -> Release:
    """Return the posterior of the task's rows; networks must not learn from others, which may be held out."""
    return result.sums.with_posterior(result.posterior * task.row_mask[:, None])


def _fit_linear_model(task: Task, points: Embeddings, result: _QueryResult) -> "Model":
    """Return a linear model of embeddings, trained on the pseudo-labels of the sums."""
    from labeldp.learn.supervised import Supervised

    pseudo_labels = result.sums.relabel(task.assign_pseudo_labels(result.posterior))
    return Supervised("linear", _linear_training(task, 0.02, 8)).fit(points, pseudo_labels)


def _combine_responses(task: Task, points: Embeddings, result: _QueryResult, responses: Release) -> Release:
    """Return the posterior of each row, given the sums and the responses.

    CrossFit estimates the prior of a row from the responses of others. Linear models on the embeddings suffice for it:
    networks that learn from half of the rows each are less accurate.
    """
    from labeldp.learn.crossfit import CrossFit

    linear_model, training = _fit_linear_model(task, points, result), _linear_training(task, 0.1, 20)
    training = replace(training, checkpoint=task.training.checkpoint if task.training else None)
    return CrossFit("linear", training, ema_decay=0.99).posteriors(points, responses, [linear_model, linear_model])


def _linear_training(task: Task, rate: float, epochs: int) -> Training:
    device = task.training.device if task.training else "auto"
    return Training(epochs=epochs, batch_size=512, learning_rate=rate, weight_decay=1e-4, device=device, seed=task.seed)


def _require_encoder(task: Task) -> "Model":
    if task.encoder is None or task.features.kind != "images":
        raise InputError(
            "refine begins from an encoder of images: give one, or choose another recipe.", parameter="encoder"
        )
    return task.encoder


def starts_from_encoder(task: Task) -> bool:
    """Whether the features are images with an encoder."""
    return task.encoder is not None and task.features.kind == "images"


def calibrate(normalized: NDArray[np.floating], sums: NoisyMoments) -> NDArray[np.float64]:
    """Return the probabilities of the linear model, calibrated by a power.

    Ridge regression shrinks scores, so that its probabilities are underconfident. The mean score of the true class is
    linear in the labels, and thus known from the sums. Calibrated probabilities must expect the same mean score, which
    determines the power.

    Args:
        normalized: The rows of the query.
        sums: The released sums.

    Returns:
        The class probabilities of each row.
    """
    scores, row_selection = normalized @ sums.coefficients, slice(None) if sums.row_mask is None else sums.row_mask
    log_probabilities = np.log(to_probabilities(scores))

    def sharpen(power: float) -> NDArray[np.float64]:
        return softmax(power * log_probabilities, axis=1)

    def excess(power: float) -> float:
        return float((sharpen(power) * scores).sum(axis=1)[row_selection].mean()) - sums.mean_score

    min_power, max_power = 0.1, 20.0
    if excess(min_power) > 0 or excess(max_power) < 0:  # too much noise, or classes that cannot be separated
        return sharpen(1.0)
    return sharpen(float(brentq(excess, min_power, max_power, xtol=1e-3)))
