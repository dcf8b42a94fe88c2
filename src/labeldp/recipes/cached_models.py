"""What takes long to make is made once, and kept in the task's folder for other runs on the same rows."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from labeldp.core.atomic_files import atomic_write, path_lock
from labeldp.recipes.task import Task
from labeldp.releases.base import Release

if TYPE_CHECKING:
    from labeldp.learn.base import Learner
    from labeldp.learn.model import Model


def train_or_load(
    task: Task, learner: Learner, release: Release, starts: Sequence[Model], initial_posterior: NDArray[np.floating]
) -> list[Model]:
    """Train a network from each start, or read those of a run that heard the same and began from the same.

    Starts follow from the task's encoder and from `begun`, what was believed of each row when their heads were made.
    """
    if task.folder is None:
        return learner.fit_many(task.features, release, starts)
    evidence_digests = [
        hashlib.sha256(array.tobytes()).hexdigest() for array in (release.log_evidence(), initial_posterior)
    ]
    keyed_learner = replace(learner, training=replace(learner.training, device="", checkpoint=None, progress=False))
    encoder = "" if task.encoder is None else task.encoder.digest()
    folder = (
        task.folder
        / f"networks-{_cache_key(task, [encoder, *evidence_digests, repr(keyed_learner), str(len(starts))])}"
    )
    with path_lock(folder):
        if folder.is_dir():
            task.reused_seconds.append(float((folder / "seconds").read_text()))
        else:
            _train_and_save(folder, lambda: learner.fit_many(task.features, release, starts))
    from labeldp.learn.model import Model, load_network

    # The network may be another run's, which paid for equal evidence: here it rests on this run's release.
    networks = [load_network(folder / str(index), learner.training.device) for index in range(len(starts))]
    return [Model.trained_on(network, release, *starts) for network in networks]


def _train_and_save(folder: Path, train: Callable[[], list[Model]]) -> None:
    started = time.perf_counter()
    with atomic_write(folder) as partial:
        partial.mkdir()
        for index, network in enumerate(train()):
            network.save(partial / str(index))
        (partial / "seconds").write_text(f"{time.perf_counter() - started:.1f}")


def cached_embeddings(task: Task, models: Sequence[Model]) -> list[NDArray[np.float32]]:
    """Return what each model makes of the rows, to the last bit as in a run that was stopped or shares its models.

    Such embeddings go into requests to the vault, and the last bits of a network's output can change from one machine
    to the next: a request that differs would be another release. Without a folder of the task, checkpoints have one.
    """
    folder = task.folder or (task.training.checkpoint if task.training else None)
    if folder is None:
        return [model.embed(task.features) for model in models]
    path = folder / f"embeddings-{_cache_key(task, [model.digest() for model in models])}.npz"
    with path_lock(path):
        if not path.is_file():
            with atomic_write(path) as partial, partial.open("wb") as file:
                np.savez(file, *[model.embed(task.features) for model in models])
    with np.load(path) as arrays:
        return [arrays[name] for name in arrays.files]


def _cache_key(task: Task, parts: Sequence[str]) -> str:
    return hashlib.sha256(" ".join([task.features.digest(), *parts]).encode()).hexdigest()[:16]
