"""What takes long to make is made once, and kept in the task's folder for other runs on the same rows."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from labeldp.files import written_whole
from labeldp.learn.base import Learner
from labeldp.learn.model import Model
from labeldp.recipes.base import Task
from labeldp.releases.base import Release


def taught(task: Task, learner: Learner, release: Release, starts: Sequence[Model]) -> list[Model]:
    """Train a network from each start, or read those of a run that heard the same.

    Starts are not looked at: they must follow from the task's encoder and what the release says.
    """
    if task.folder is None:
        return learner.together(task.features, release, starts)
    heard = hashlib.sha256(release.log_evidence().tobytes()).hexdigest()
    own = replace(learner, training=replace(learner.training, device="", checkpoint=None, progress=False))
    encoder = "" if task.encoder is None else task.encoder.digest()
    folder = task.folder / f"networks-{_mark(task, [encoder, heard, repr(own)])}"
    if not folder.is_dir():
        with written_whole(folder) as partial:
            partial.mkdir()
            for number, network in enumerate(learner.together(task.features, release, starts)):
                network.save(partial / str(number))
    kept = [Model.load(folder / str(number), learner.training.device).network for number in range(len(starts))]
    return [Model.trained_on(each, release, start) for each, start in zip(kept, starts, strict=True)]


def embedded(task: Task, models: Sequence[Model]) -> list[NDArray[np.float32]]:
    """Return what each model makes of the rows, to the last bit as in a run that was stopped or shares its models.

    Such embeddings go into requests to the vault, and the last bits of a network's output can change from one machine
    to the next: a request that differs would be another release. Without a folder of the task, checkpoints have one.
    """
    folder = task.folder or (task.training.checkpoint if task.training else None)
    if folder is None:
        return [model.embed(task.features) for model in models]
    path = folder / f"embeddings-{_mark(task, [model.digest() for model in models])}.npz"
    if not path.is_file():
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, *[model.embed(task.features) for model in models])
    with np.load(path) as kept:
        return [kept[name] for name in kept.files]


def _mark(task: Task, marks: Sequence[str]) -> str:
    return hashlib.sha256(" ".join([task.features.digest(), *marks]).encode()).hexdigest()[:16]
