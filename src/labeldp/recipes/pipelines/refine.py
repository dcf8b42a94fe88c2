"""Pictures with a label-free encoder: noisy sums for a start, evidence where it pays, and a semi-supervised finish."""

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

_PSEUDO_LABEL_CONFIDENCE = 0.95  # in the labels of the surest rows: a network that is surer than that may contradict


@recipe(
    "refine",
    "sums over an encoder, then SoftMatch; where epsilon allows, sums over what that learnt, and again; from epsilon "
    "1.5 the most telling randomized response, and CrossFit",
    needs="encoder",
    networks="by default",
)
def refine(task: Task, rows_per_class: int = 1000, clusters: int = 100) -> Steps:
    """Sums give a linear model for next to nothing. It is the head from which networks start.

    The surest rows of that model, so many of each class and spread over clusters, count as labelled for SoftMatch. The
    network that it gives sees more, so sums over the encoder and the network together are heard next. What these say of
    each row teaches a network that sees yet more, and so on. Where epsilon is large, sums get little of it, and the
    rest goes into answers of the rows themselves, among the classes that sums leave open. What is believed of each row
    in the end teaches a last network. All begin from the encoder; one of several has a network for each on the way.
    """
    if rows_per_class < 1 or clusters < 1:
        raise InputError("refine needs at least one row a class and one cluster.")
    from labeldp.learn.encoded import attach_linear_head, concat_embeddings, split_encoder

    encoders = split_encoder(_require_encoder(task))
    final_learner = task.learner("Supervised", targets="posteriors", augment="strong")
    next_learner = final_learner.with_training(epochs=_shorten_epochs(final_learner.training.epochs, 3))
    softmatch = task.learner("SoftMatch", ema_decay=0.998)
    softmatch = softmatch.with_training(
        learning_rate=final_learner.training.rate / 5, epochs=_shorten_epochs(final_learner.training.epochs, 5)
    )
    mean_rows_per_class, labels_per_user = (
        int(task.full_task.row_mask.sum()) / len(task.space),
        task.full_task.labels_per_user,
    )
    (first_epsilon, *later_epsilons), response_epsilon = split_refine_epsilon(
        task.epsilon, mean_rows_per_class, labels_per_user
    )
    task = replace(task, delta=divide_epsilon(task.delta, 1 + len(later_epsilons)))
    embeddings = cached_embeddings(task, encoders)
    result = yield from (
        _query_balanced_clusters(task)
        if not later_epsilons and task.full_task.signal_strength(first_epsilon) < CLUSTER_COUNTS_BELOW
        else _query_sums(task, embeddings, first_epsilon)
    )
    starts = [
        attach_linear_head(encoder, _fit_linear_model(task, Embeddings(own_embeddings), result))
        for encoder, own_embeddings in zip(encoders, embeddings, strict=True)
    ]
    codes = select_confident_rows(
        result.posterior, kmeans(result.query_rows, min(clusters, len(result.query_rows)), task.seed), rows_per_class
    )
    pseudo_labels = result.sums.relabel(
        np.where(task.row_mask, codes, MISSING).astype(np.int32), _PSEUDO_LABEL_CONFIDENCE
    )
    initial_posterior = result.posterior  # from which all starts follow
    networks = train_or_load(task, softmatch.named("first networks"), pseudo_labels, starts, initial_posterior)
    for round_index, epsilon in enumerate(later_epsilons):
        if round_index:
            networks = train_or_load(
                task,
                next_learner.named("next networks"),
                _posterior_of_task_rows(task, result),
                starts,
                initial_posterior,
            )
        embeddings = [*embeddings, *cached_embeddings(task, networks)]
        result = yield from _query_sums(task, embeddings, epsilon, [result.sums])
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
    # Sums err alike for rows that look alike: a short training, as it was tried, learns less of that than a long one.
    return (
        (final_learner if response_epsilon else next_learner)
        .named("last network")
        .fit(task.features, posterior, starts[0])
    )


def _shorten_epochs(epochs: int, factor: int) -> int:
    """Return the epochs of a training that begins nearer to its end, or whose outcome is not the last word."""
    return max(epochs // factor, min(epochs, 10))


@dataclass(frozen=True, eq=False)
class _QueryResult:
    """Sums over embeddings, and what they say of each row."""

    query_rows: NDArray[np.float32]
    sums: NoisyMoments | NoisyCounts
    posterior: NDArray[np.float64]


def _query_sums(
    task: Task, embeddings: Sequence[NDArray[np.float32]], epsilon: float, derived_from: Sequence[Release] = ()
) -> Generator[Request, Any, _QueryResult]:
    """Hear sums over embeddings, which may rest on what was heard `after` which they come."""
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
    """Hear which class leads in each of as many kinds of rows, which were found without labels."""
    memberships = task.cluster_memberships(len(task.space))
    counts = yield Request(GroupHistogram(memberships.argmax(axis=1), task.epsilon))
    return _QueryResult(task.normalized, counts, cluster_class_posterior(counts, memberships))


def _posterior_of_task_rows(task: Task, result: _QueryResult) -> Release:
    """Return what sums say of each row of the task; others, which may score the model later, are not learnt from."""
    return result.sums.with_posterior(result.posterior * task.row_mask[:, None])


def _fit_linear_model(task: Task, points: Embeddings, result: _QueryResult) -> "Model":
    """Return a linear model that says of some embeddings what the sums say of the rows."""
    from labeldp.learn.supervised import Supervised

    pseudo_labels = result.sums.relabel(task.assign_pseudo_labels(result.posterior))
    return Supervised("linear", _linear_training(task, 0.02, 8)).fit(points, pseudo_labels)


def _combine_responses(task: Task, points: Embeddings, result: _QueryResult, responses: Release) -> Release:
    """Return what is believed of each row after its answer.

    A pair of linear models is enough for the part that answers say of other rows: networks that learn from half of the
    rows each come to less than lines on what was learnt before.
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
        raise InputError("refine begins from an encoder of pictures: give one, or choose another recipe.")
    return task.encoder


def starts_from_encoder(task: Task) -> bool:
    """Whether the rows are pictures for which there is an encoder."""
    return task.encoder is not None and task.features.kind == "images"


def calibrate(normalized: NDArray[np.floating], sums: NoisyMoments) -> NDArray[np.float64]:
    """Return the linear model's probabilities, as sharp as the sums say that they may be.

    A ridge regression on labels leans to the middle. The mean score of the true class is known from the sums, because
    it is linear in the labels; probabilities that are right expect the same, so a power is chosen for which they do.
    """
    scores, row_selection = normalized @ sums.coefficients, slice(None) if sums.row_mask is None else sums.row_mask
    log_probabilities = np.log(to_probabilities(scores))

    def sharpen(power: float) -> NDArray[np.float64]:
        return softmax(power * log_probabilities, axis=1)

    def excess(power: float) -> float:
        return float((sharpen(power) * scores).sum(axis=1)[row_selection].mean()) - sums.mean_score

    min_power, max_power = 0.1, 20.0
    if excess(min_power) > 0 or excess(max_power) < 0:  # noise, or classes that nothing divides
        return sharpen(1.0)
    return sharpen(float(brentq(excess, min_power, max_power, xtol=1e-3)))
