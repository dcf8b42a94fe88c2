"""Cache of networks and embeddings in a task's folder, for other runs on the same rows."""

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
    """Train a network from each start, or load the networks of a run with the same evidence and starts.

    Args:
        task: The task, with its folder and encoder.
        learner: The learner of the networks.
        release: The release whose evidence the networks learn.
        starts: The models to start from. They are functions of the task's encoder and `initial_posterior`.
        initial_posterior: The posterior of each row from which the heads of the starts were fitted.

    Returns:
        A network for each start.
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

    # Another run may have trained the network on equal evidence. The lineage must name the release of this run.
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
    """Return the embeddings of each model, equal to the last bit in every run that shares the models.

    Embeddings are part of requests to the vault, and the last bits of a network's output differ between machines. A
    request that differs is another release, which is charged. The cache is in the task's folder, or else in that of the
    checkpoints.
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
