"""Pictures with a label-free encoder: noisy sums for a start, evidence where it pays, and a semi-supervised finish."""

import hashlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from labeldp.errors import InputError
from labeldp.features.embeddings import Embeddings
from labeldp.features.images import Images
from labeldp.files import written_whole
from labeldp.labels import MISSING
from labeldp.learn.crossfit import CrossFit
from labeldp.learn.encoded import abreast, members, with_head
from labeldp.learn.loop import Training
from labeldp.learn.model import Model
from labeldp.learn.softmatch import SoftMatch
from labeldp.learn.supervised import Supervised
from labeldp.mechanisms import LinearQuery, RRInformative
from labeldp.mechanisms.base import in_parts
from labeldp.recipes.base import Ask, Steps, Task, recipe, split_epsilon
from labeldp.recipes.moments import is_faint, smooth_rows
from labeldp.recipes.votes import surest
from labeldp.releases.base import Release
from labeldp.releases.moments import NoisyMoments, as_chances
from labeldp.represent.clusters import kmeans
from labeldp.represent.lift import Lift

_ENOUGH = 500.0  # what sums over an encoder should say (`Task.told`), where more goes to randomized response
_LOCAL_FROM = 1.0  # epsilon from which a row's own noisy label says enough
_CONFIDENCE = 0.95  # in the labels of the surest rows: a network that is surer than that may contradict


@recipe(
    "refine",
    "sums over an encoder, then SoftMatch; where epsilon allows, sums over what that learnt; from epsilon 1 the most "
    "telling randomized response, and CrossFit",
)
def refine(task: Task, rows_a_class: int = 1000, clusters: int = 100) -> Steps:
    """Sums give a linear model for next to nothing. It is the head from which networks start.

    The surest rows of that model, so many of each class and spread over clusters, count as labelled for SoftMatch. The
    network that it gives sees more, so sums over the encoder and the network together are heard next. From epsilon 1 on
    these get little, and the rest goes into answers of the rows themselves, among the classes that they leave open.
    What is believed of each row in the end teaches a network that starts again from the encoder. An encoder of several
    has a SoftMatch network for each.
    """
    if rows_a_class < 1 or clusters < 1:
        raise InputError("refine needs at least one row a class and one cluster.")
    soft, cross = (task.learner(kind, inertia=0.998) for kind in (SoftMatch, CrossFit))
    last = task.learner(Supervised, targets="posteriors", augment="strong")
    encoders = members(_encoder(task))
    first, second, answers = _budget(task)
    task = replace(task, delta=in_parts(task.delta, 2)) if second else task
    seen = [encoder.embed(task.features) for encoder in encoders]
    look = yield from _look(task, seen, first)
    starts = [_start(task, *each, look) for each in zip(encoders, seen, strict=True)]
    chosen = surest(look.likely, kmeans(look.query, min(clusters, len(look.query)), task.seed), rows_a_class)
    marked = look.sums.relabel(np.where(task.rows, chosen, MISSING).astype(np.int32), _CONFIDENCE)
    apart = [soft.with_training(seed=soft.training.seed + place) for place in range(len(starts))]
    networks = [each.fit(task.features, marked, start) for each, start in zip(apart, starts, strict=True)]
    if second:
        learnt = _kept(soft.training, look.sums, lambda: [network.embed(task.features) for network in networks])
        look = yield from _look(task, [*seen, *learnt], second, [look.sums])
        networks = [_start(task, *each, look) for each in zip(networks, learnt, strict=True)]
    if answers:
        heard = yield Ask(RRInformative(answers, look.likely), None, [look.sums])
        beliefs = cross.posteriors(task.features, heard, networks)
    elif second:
        beliefs = look.sums.believe(look.likely)
    elif len(networks) == 1:
        return networks[0]
    else:
        chances = np.mean([network.predict_proba(task.features) for network in networks], axis=0)
        beliefs = look.sums.believe(chances, derived_from=networks)
    return last.fit(task.features, beliefs, starts[0])


def _budget(task: Task) -> tuple[float, float, float]:
    """Return the epsilons of the first sums, of those over the networks, and of the rows' own answers."""
    enough, local = _ENOUGH / max(task.told(1.0), 1e-9), task.label_epsilon >= _LOCAL_FROM
    if task.epsilon < 3 * enough and not local:
        return task.epsilon, 0.0, 0.0
    first, rest = split_epsilon(task.epsilon, min(enough / task.epsilon, 0.25))
    return (first, *split_epsilon(rest, min(3 * enough, task.epsilon / 4) / rest)) if local else (first, rest, 0.0)


@dataclass(frozen=True, eq=False)
class _Look:
    """Sums over embeddings, and what they say of each row."""

    query: NDArray[np.float32]
    sums: NoisyMoments
    likely: NDArray[np.float64]


def _look(
    task: Task, seen: Sequence[NDArray[np.float32]], epsilon: float, after: Sequence[Release] = ()
) -> Generator[Ask, Any, _Look]:
    """Hear sums over embeddings, which may rest on what was heard `after` which they come."""
    points, part = Embeddings(abreast(seen)), replace(task, epsilon=epsilon)
    query = smooth_rows(points, part.columns) if is_faint(part) else Lift.fit(points, columns=part.columns)(points)
    sums = yield Ask(LinearQuery(query, epsilon, task.delta), None, after)
    return _Look(query, sums, calibrated(query, sums))


def _start(task: Task, body: Model, embeddings: NDArray[np.float32], look: _Look) -> Model:
    """Return a network with a head that says of its own embeddings what the sums say."""
    guesses = look.sums.relabel(np.where(task.rows, look.likely.argmax(axis=1), MISSING).astype(np.int32))
    device = task.training.device if task.training else "auto"
    line = Training(epochs=8, batch=512, rate=0.02, decay=1e-4, device=device, seed=task.seed)
    return with_head(body, Supervised("linear", line).fit(Embeddings(embeddings), guesses))


def _kept(
    training: Training, sums: Release, make: Callable[[], list[NDArray[np.float32]]]
) -> list[NDArray[np.float32]]:
    """Make embeddings that sums are heard over, or read those of a run that was stopped.

    They go into the request, and the last bits of a network's output can change from one machine to the next: a request
    that differs would be another release.
    """
    if training.checkpoint is None:
        return make()
    mark = hashlib.sha256(b"".join(array.tobytes() for array in sums.arrays().values())).hexdigest()
    path = training.checkpoint / f"learnt-{mark[:16]}.npz"
    if not path.is_file():
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, *make())
    with np.load(path) as kept:
        return [kept[name] for name in kept.files]


def _encoder(task: Task) -> Model:
    if task.encoder is None or not isinstance(task.features, Images):
        raise InputError("refine begins from an encoder of pictures: give one, or choose another recipe.")
    return task.encoder


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
