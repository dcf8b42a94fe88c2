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
from labeldp.data.row_normalizer import Lift
from labeldp.learn.training import Training
from labeldp.privacy.mechanisms import GroupHistogram, LinearQuery, RRInformative
from labeldp.privacy.mechanisms.base import in_parts
from labeldp.recipes.base import Ask, Steps, recipe
from labeldp.recipes.budget_split import KINDS_BELOW, refine_shares
from labeldp.recipes.cached_models import embedded, taught
from labeldp.recipes.pipelines.moments import is_faint
from labeldp.recipes.task import Task
from labeldp.recipes.votes import classes_by_kind, surest
from labeldp.releases.base import Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.moments import NoisyMoments, as_chances
from labeldp.representation.clusters import kmeans
from labeldp.representation.smooth import smooth_rows

if TYPE_CHECKING:
    from labeldp.learn.model import Model

_CONFIDENCE = 0.95  # in the labels of the surest rows: a network that is surer than that may contradict


@recipe(
    "refine",
    "sums over an encoder, then SoftMatch; where epsilon allows, sums over what that learnt, and again; from epsilon "
    "1.5 the most telling randomized response, and CrossFit",
    needs="encoder",
    networks="by default",
)
def refine(task: Task, rows_a_class: int = 1000, clusters: int = 100) -> Steps:
    """Sums give a linear model for next to nothing. It is the head from which networks start.

    The surest rows of that model, so many of each class and spread over clusters, count as labelled for SoftMatch. The
    network that it gives sees more, so sums over the encoder and the network together are heard next. What these say of
    each row teaches a network that sees yet more, and so on. Where epsilon is large, sums get little of it, and the
    rest goes into answers of the rows themselves, among the classes that sums leave open. What is believed of each row
    in the end teaches a last network. All begin from the encoder; one of several has a network for each on the way.
    """
    if rows_a_class < 1 or clusters < 1:
        raise InputError("refine needs at least one row a class and one cluster.")
    from labeldp.learn.encoded import abreast, members, with_head

    encoders = members(_encoder(task))
    last = task.learner("Supervised", targets="posteriors", augment="strong")
    early = last.with_training(epochs=_part(last.training.epochs, 3))
    soft = task.learner("SoftMatch", inertia=0.998)
    soft = soft.with_training(rate=last.training.rate / 5, epochs=_part(last.training.epochs, 5))
    rows_of_class, per_user = int(task.whole.rows.sum()) / len(task.space), task.whole.labels_per_user
    (first, *more), answers = refine_shares(task.epsilon, rows_of_class, per_user)
    task = replace(task, delta=in_parts(task.delta, 1 + len(more)))
    seen = embedded(task, encoders)
    look = yield from (_kinds(task) if not more and task.whole.told(first) < KINDS_BELOW else _look(task, seen, first))
    starts = [with_head(body, _line(task, Embeddings(own), look)) for body, own in zip(encoders, seen, strict=True)]
    chosen = surest(look.likely, kmeans(look.query, min(clusters, len(look.query)), task.seed), rows_a_class)
    marked = look.sums.relabel(np.where(task.rows, chosen, MISSING).astype(np.int32), _CONFIDENCE)
    begun = look.likely  # from which all starts follow
    networks = taught(task, soft.named("first networks"), marked, starts, begun)
    for turn, epsilon in enumerate(more):
        if turn:
            networks = taught(task, early.named("next networks"), _beliefs(task, look), starts, begun)
        seen = [*seen, *embedded(task, networks)]
        look = yield from _look(task, seen, epsilon, [look.sums])
    if answers:
        heard = yield Ask(RRInformative(answers, look.likely), None, [look.sums])
        beliefs = _after_answers(task, Embeddings(abreast(seen)), look, heard)
    elif more:
        beliefs = _beliefs(task, look)
    elif len(networks) == 1:
        return networks[0]
    else:
        chances = np.mean([network.predict_proba(task.features) for network in networks], axis=0)
        beliefs = look.sums.believe(chances * task.rows[:, None], derived_from=networks)
    # Sums err alike for rows that look alike: a short training, as it was tried, learns less of that than a long one.
    return (last if answers else early).named("last network").fit(task.features, beliefs, starts[0])


def _part(epochs: int, parts: int) -> int:
    """Return the epochs of a training that begins nearer to its end, or whose outcome is not the last word."""
    return max(epochs // parts, min(epochs, 10))


@dataclass(frozen=True, eq=False)
class _Look:
    """Sums over embeddings, and what they say of each row."""

    query: NDArray[np.float32]
    sums: NoisyMoments | NoisyCounts
    likely: NDArray[np.float64]


def _look(
    task: Task, seen: Sequence[NDArray[np.float32]], epsilon: float, after: Sequence[Release] = ()
) -> Generator[Ask, Any, _Look]:
    """Hear sums over embeddings, which may rest on what was heard `after` which they come."""
    from labeldp.learn.encoded import abreast

    points, part = Embeddings(abreast(seen)), replace(task, epsilon=epsilon)
    query = smooth_rows(points, part.columns) if is_faint(part) else Lift.fit(points, columns=part.columns)(points)
    sums = yield Ask(LinearQuery(query, epsilon, task.delta), None, after)
    return _Look(query, sums, calibrated(query, sums))


def _kinds(task: Task) -> Generator[Ask, Any, _Look]:
    """Hear which class leads in each of as many kinds of rows, which were found without labels."""
    shares = task.shares(len(task.space))
    counts = yield Ask(GroupHistogram(shares.argmax(axis=1), task.epsilon))
    return _Look(task.lifted, counts, classes_by_kind(counts, shares))


def _beliefs(task: Task, look: _Look) -> Release:
    """Return what sums say of each row of the task; others, which may score the model later, are not learnt from."""
    return look.sums.believe(look.likely * task.rows[:, None])


def _line(task: Task, points: Embeddings, look: _Look) -> "Model":
    """Return a linear model that says of some embeddings what the sums say of the rows."""
    from labeldp.learn.supervised import Supervised

    guesses = look.sums.relabel(task.likeliest(look.likely))
    return Supervised("linear", _linear(task, 0.02, 8)).fit(points, guesses)


def _after_answers(task: Task, points: Embeddings, look: _Look, heard: Release) -> Release:
    """Return what is believed of each row after its answer.

    A pair of linear models is enough for the part that answers say of other rows: networks that learn from half of the
    rows each come to less than lines on what was learnt before.
    """
    from labeldp.learn.crossfit import CrossFit

    line, training = _line(task, points, look), _linear(task, 0.1, 20)
    training = replace(training, checkpoint=task.training.checkpoint if task.training else None)
    return CrossFit("linear", training, inertia=0.99).posteriors(points, heard, [line, line])


def _linear(task: Task, rate: float, epochs: int) -> Training:
    device = task.training.device if task.training else "auto"
    return Training(epochs=epochs, batch=512, rate=rate, decay=1e-4, device=device, seed=task.seed)


def _encoder(task: Task) -> "Model":
    if task.encoder is None or task.features.kind != "images":
        raise InputError("refine begins from an encoder of pictures: give one, or choose another recipe.")
    return task.encoder


def begins_from_encoder(task: Task) -> bool:
    """Whether the rows are pictures for which there is an encoder."""
    return task.encoder is not None and task.features.kind == "images"


def calibrated(lifted: NDArray[np.floating], sums: NoisyMoments) -> NDArray[np.float64]:
    """Return the linear model's probabilities, as sharp as the sums say that they may be.

    A ridge regression on labels leans to the middle. The mean score of the true class is known from the sums, because
    it is linear in the labels; probabilities that are right expect the same, so a power is chosen for which they do.
    """
    scores, rows = lifted @ sums.coefficients, slice(None) if sums.active is None else sums.active
    logs = np.log(as_chances(scores))

    def sharpened(power: float) -> NDArray[np.float64]:
        return softmax(power * logs, axis=1)

    def excess(power: float) -> float:
        return float((sharpened(power) * scores).sum(axis=1)[rows].mean()) - sums.mean_score

    lowest, highest = 0.1, 20.0
    if excess(lowest) > 0 or excess(highest) < 0:  # noise, or classes that nothing divides
        return sharpened(1.0)
    return sharpened(float(brentq(excess, lowest, highest, xtol=1e-3)))
