"""Pictures with a label-free encoder: noisy sums for a start, evidence where it pays, and a semi-supervised finish."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from labeldp.errors import InputError
from labeldp.features.images import Images
from labeldp.labels import MISSING
from labeldp.learn.crossfit import CrossFit
from labeldp.learn.encoded import with_head
from labeldp.learn.loop import Training
from labeldp.learn.softmatch import SoftMatch
from labeldp.learn.supervised import Supervised
from labeldp.mechanisms import LinearQuery, RRInformative
from labeldp.recipes.base import Ask, Steps, Task, recipe, split_epsilon
from labeldp.recipes.moments import is_faint, smooth_rows
from labeldp.recipes.votes import surest
from labeldp.releases.moments import NoisyMoments, as_chances

_SUMS = 0.1  # what sums over an encoder need, where more goes to randomized response
_LOCAL_FROM = 1.0  # epsilon from which a row's own noisy label says enough
_CONFIDENCE = 0.95  # in the labels of the surest rows: a network that is surer than that may contradict


@recipe(
    "refine", "sums over an encoder, then SoftMatch; from epsilon 1 the most telling randomized response, then CrossFit"
)
def refine(task: Task, rows_a_class: int = 1000, clusters: int = 100) -> Steps:
    """Sums give a linear model for next to nothing. It is the head from which networks start.

    Below epsilon 1 its surest rows, so many of each class and spread over clusters, count as labelled. From there on
    nearly all of epsilon goes into answers of the rows themselves, among the classes that the linear model leaves open.
    """
    if task.encoder is None or not isinstance(task.features, Images):
        raise InputError("refine begins from an encoder of pictures: give one, or choose another recipe.")
    local = task.label_epsilon >= _LOCAL_FROM
    first, second = split_epsilon(task.epsilon, _SUMS / task.label_epsilon) if local else (task.epsilon, 0.0)
    learner = task.learner(CrossFit if local else SoftMatch, inertia=0.998)
    query = smooth_rows(task) if is_faint(task, first) else task.lifted
    sums = yield Ask(LinearQuery(query, first, task.delta))
    likely = calibrated(query, sums)
    guesses = sums.relabel(np.where(task.rows, likely.argmax(axis=1), MISSING).astype(np.int32))
    line = Training(epochs=8, batch=512, rate=0.02, decay=1e-4, device=learner.training.device, seed=task.seed)
    start = with_head(task.encoder, Supervised("linear", line).fit(task.points, guesses))
    if local:
        heard = yield Ask(RRInformative(second, likely), None, [sums])
    else:
        chosen = surest(likely, task.clusters(clusters), rows_a_class)
        heard = sums.relabel(np.where(task.rows, chosen, MISSING).astype(np.int32), _CONFIDENCE)
    return learner.fit(task.features, heard, start)


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
