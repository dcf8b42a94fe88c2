"""Pictures with a label-free encoder: noisy sums for a start, evidence where it pays, and a semi-supervised finish."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from labeldp.errors import InputError
from labeldp.features.images import Images
from labeldp.labels import MISSING
from labeldp.learn.crossfit import CrossFit
from labeldp.learn.encoded import with_head
from labeldp.learn.loop import Training
from labeldp.learn.model import Model
from labeldp.learn.softmatch import SoftMatch
from labeldp.learn.supervised import Supervised
from labeldp.mechanisms import LinearQuery, RRInformative
from labeldp.recipes.base import Ask, Steps, Task, recipe, split_epsilon
from labeldp.recipes.moments import is_faint, smooth_rows
from labeldp.recipes.votes import surest
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments, as_chances

_ENOUGH = 500.0  # what sums over an encoder should say (`Task.told`), where more goes to randomized response
_LOCAL_FROM = 1.0  # epsilon from which a row's own noisy label says enough
_CONFIDENCE = 0.95  # in the labels of the surest rows: a network that is surer than that may contradict


@recipe(
    "refine",
    "sums over an encoder, then SoftMatch; from epsilon 1 also sums over what that learnt, the most telling randomized "
    "response, and CrossFit",
)
def refine(task: Task, rows_a_class: int = 1000, clusters: int = 100) -> Steps:
    """Sums give a linear model for next to nothing. It is the head from which networks start.

    The surest rows of that model, so many of each class and spread over clusters, count as labelled for SoftMatch. From
    epsilon 1 on, the network that it gives is a better encoder, so sums over that are heard as well, and nearly all of
    epsilon goes into answers of the rows themselves, among the classes that those sums leave open. Where rows are few,
    sums need so much that they are heard once only.
    """
    soft, cross = (task.learner(kind, inertia=0.998) for kind in (SoftMatch, CrossFit))
    first, second, answers = _budget(task)
    task = replace(task, delta=task.delta / 2) if second else task
    look = yield from _look(task, first)
    if second or not answers:
        chosen = surest(look.likely, task.clusters(clusters), rows_a_class)
        marked = look.sums.relabel(np.where(task.rows, chosen, MISSING).astype(np.int32), _CONFIDENCE)
        network = soft.fit(task.features, marked, look.start)
        if not second:
            return network
        look = yield from _look(replace(task, encoder=network), second, [look.sums])
    heard = yield Ask(RRInformative(answers, look.likely), None, [look.sums])
    return cross.fit(task.features, heard, look.start)


def _budget(task: Task) -> tuple[float, float, float]:
    """Return the epsilons of the first sums, of those over the network, and of the rows' own answers."""
    if task.label_epsilon < _LOCAL_FROM:
        return task.epsilon, 0.0, 0.0
    enough = _ENOUGH / task.told(1.0)
    first, rest = split_epsilon(task.epsilon, min(enough / task.epsilon, 0.25))
    if 3 * enough > task.epsilon / 2:
        return first, 0.0, rest
    return first, *split_epsilon(rest, 2 * enough / rest)


@dataclass(frozen=True, eq=False)
class _Look:
    """What sums over an encoder say: of each row, and as a network, the encoder with a head."""

    sums: NoisyMoments
    likely: NDArray[np.float64]
    start: Model


def _look(task: Task, epsilon: float, after: Sequence[Release] = ()) -> Generator[Ask, Any, _Look]:
    """Hear sums over the task's encoder, which may have learnt what was heard `after` which they come."""
    if task.encoder is None or not isinstance(task.features, Images):
        raise InputError("refine begins from an encoder of pictures: give one, or choose another recipe.")
    query = smooth_rows(task) if is_faint(task, epsilon) else task.lifted
    sums = yield Ask(LinearQuery(query, epsilon, task.delta), None, after)
    likely = calibrated(query, sums)
    guesses = sums.relabel(np.where(task.rows, likely.argmax(axis=1), MISSING).astype(np.int32))
    device = task.training.device if task.training else "auto"
    line = Training(epochs=8, batch=512, rate=0.02, decay=1e-4, device=device, seed=task.seed)
    return _Look(sums, likely, with_head(task.encoder, Supervised("linear", line).fit(task.points, guesses)))


def begins_from_encoder(task: Task) -> bool:
    """Whether the rows are pictures for which there is an encoder."""
    return task.encoder is not None and isinstance(task.features, Images)


def calibrated(lifted: NDArray[np.floating], sums: NoisyMoments) -> NDArray[np.float64]:
    """Return the linear model's probabilities, as sharp as the sums say that they may be.

    A ridge regression on labels leans to the middle. The mean score of the true class is known from the sums, because
    it is linear in the labels; probabilities that are right expect the same, so a power is chosen for which they do.
    """
    scores, rows = lifted @ sums.coefficients, slice(None) if sums.active is None else sums.active
    logs = np.log(as_chances(scores))

    def sharpened(power: float) -> NDArray[np.float64]:
        sharp = np.exp(power * (logs - logs.max(axis=1, keepdims=True)))
        return sharp / sharp.sum(axis=1, keepdims=True)

    def excess(power: float) -> float:
        return float((sharpened(power) * scores).sum(axis=1)[rows].mean()) - sums.mean_score

    lowest, highest = 0.1, 20.0
    if excess(lowest) > 0 or excess(highest) < 0:  # noise, or classes that nothing divides
        return sharpened(1.0)
    return sharpened(float(brentq(excess, lowest, highest, xtol=1e-3)))
