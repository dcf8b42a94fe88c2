"""Teachers that are models of any learner of the library, trained in worker processes or on Ray.

Teachers share nothing that depends on labels. Every teacher has a separate training with its index as the seed, and is
a function of public facts and of the labels of its own part alone. No clipping norm, early stopping or class weight is
common to two teachers. If a learner fails on some labels in training or in prediction, its teacher abstains: a
scikit-learn classifier fails if it saw one class only, for example. An error or a warning would reveal labels, so none
is shown. An abstention is one vote less, which the noise covers. A rehearsal on synthetic labels finds failures that do
not depend on the labels, before anything is charged.
"""

import hashlib
import math
import random
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.data.base import Features
from labeldp.learn.base import Learner
from labeldp.learn.predictor import Predictor, load_predictor
from labeldp.learn.progress import progress_bar
from labeldp.learn.sklearn_learner import SklearnLearner
from labeldp.learn.supervised import Supervised
from labeldp.learn.training import Training
from labeldp.privacy.teachers import engines
from labeldp.privacy.teachers.partition import rows_by_teacher
from labeldp.privacy.teachers.teacher_data import ABSTAIN, TeacherData, count_winners
from labeldp.privacy.teachers.trainer_description import describe
from labeldp.releases.derived import PseudoLabels

# The number of rows of the rehearsal.
_REHEARSAL_ROWS = 64


@dataclass(frozen=True)
class Networks:
    """Teachers of any learner, each on its own part.

    Attributes:
        learner: The learner of every teacher.
        visible_features: The features that a teacher uses: those of its "own" part, or those of "all" rows. Features
            are public under label privacy, and a semi-supervised learner uses rows without labels (FixMatch, as in
            PATE-FM).
        engine: Where teachers are trained: "here", "processes", "ray", or the address of a Ray cluster. Every engine
            processes raw labels.
        workers: The number of worker processes; None for one for each core.
        retries: How often a job is repeated after its worker died.
        checkpoint_folder: The folder for trained teachers, which are not trained again. It is as secret as the labels.
        progress: Whether to show a progress bar.
    """

    learner: Learner | SklearnLearner = field(
        default_factory=lambda: Supervised(training=Training(30, 32, learning_rate=0.05))
    )
    visible_features: Literal["own", "all"] = "own"
    engine: str = "processes"
    workers: int | None = None
    retries: int = 2
    checkpoint_folder: Path | None = None
    progress: bool = False

    def check(self, points: Any, query_points: Any, space: LabelSpace, whole_records: bool) -> None:
        """Check the rows, and rehearse a training on synthetic labels, which finds failures of every teacher."""
        if (
            not isinstance(points, Features)
            or type(points) is not type(query_points)
            or points.shape != query_points.shape
        ):
            raise InputError("Network teachers learn from Features, and vote on rows of the same kind and shape.")
        if whole_records and self.visible_features == "all":
            raise InputError(
                'A teacher that uses all features protects labels only: choose visible_features="own" with public=.'
            )
        # Where whole records are secret, a failure on `points` would reveal something about them.
        public = query_points if whole_records else points
        self.describe()  # raises an error for a learner without a description, before anything is charged
        row_ids = np.arange(min(len(public), _REHEARSAL_ROWS))
        synthetic_labels = PseudoLabels(
            codes=(row_ids % len(space)).astype(np.int32), **_raw_label_fields(space, len(row_ids))
        )
        rehearsal = self.teacher_learner(0, epochs=1).fit(public.select(row_ids), synthetic_labels)
        rehearsal.predict_proba(query_points.select(np.arange(1)))
        if self.checkpoint_folder is not None:
            with tempfile.TemporaryDirectory() as folder:
                rehearsal.save(Path(folder) / "rehearsal")

    def count_votes(self, data: TeacherData) -> NDArray[np.int64]:
        """Train the teachers that are not stored, and count the votes of all."""
        if self.checkpoint_folder is not None:
            self.checkpoint_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        jobs = [
            (index, row_ids, data.codes[row_ids])
            for index, row_ids in enumerate(rows_by_teacher(data.teacher_ids, data.codes))
        ]
        with progress_bar(self.progress, "teachers", len(jobs)) as on_job_done:
            shared_inputs = _SharedInputs(self, data.points, data.query_points, data.space, data.points.digest())
            engine_options: dict[str, Any] = {"workers": self.workers, "retries": self.retries}
            winners = engines.run(
                _train_and_vote, shared_inputs, jobs, self.engine, on_job_done=on_job_done, **engine_options
            )
        return count_winners(winners, len(data.space))

    def teacher_learner(self, index: int, **changes: Any) -> Any:
        """Return the learner of one teacher, without checkpoints: they would hold raw labels outside of the vault."""
        if not isinstance(self.learner, Learner):
            return self.learner
        overrides = {"seed": self.learner.training.seed + index, "checkpoint": None, "progress": False}
        return self.learner.with_training(**overrides | changes)

    def describe(self) -> str:
        """Describe what a teacher depends on beside rows and labels. The engine is not part of it."""
        return f"{describe(self.teacher_learner(0))} sees {self.visible_features}"


@dataclass(frozen=True, eq=False)
class _SharedInputs:
    """The inputs that all workers share. None depends on labels."""

    trainer: Networks
    points: Features
    query_points: Features
    space: LabelSpace
    points_digest: str


def _train_and_vote(shared_inputs: _SharedInputs, job: tuple[int, NDArray[np.int64], Codes]) -> NDArray[np.int32]:
    """Train one teacher, or load it from the folder, and return its vote for each query."""
    index, row_ids, codes = job
    folder = None
    if shared_inputs.trainer.checkpoint_folder is not None:
        digest = hashlib.sha256(f"{shared_inputs.trainer.describe()} {shared_inputs.points_digest} {index}".encode())
        digest.update(row_ids.tobytes() + codes.tobytes())
        folder = shared_inputs.trainer.checkpoint_folder / f"teacher-{index:05d}-{digest.hexdigest()[:16]}"
    stored = load_predictor(folder) if folder is not None and folder.is_dir() else None
    try:
        with warnings.catch_warnings(action="ignore"), _isolated_random_state(index):  # warnings reveal labels, too
            teacher = _train_teacher(shared_inputs, index, row_ids, codes) if stored is None else stored
            votes = teacher.predict_proba(shared_inputs.query_points).argmax(axis=1).astype(np.int32)
            if folder is not None and stored is None:
                teacher.save(folder)
    except (MemoryError, torch.OutOfMemoryError, OSError):
        raise  # independent of labels; the engine may try again
    except Exception:
        return np.full(len(shared_inputs.query_points), ABSTAIN, np.int32)
    return votes


@contextmanager
def _isolated_random_state(seed: int) -> Iterator[None]:
    """Isolate the random state of a teacher from that of other teachers.

    A learner without a seed draws from the global generators of the process. The number of draws may depend on its
    labels, so the state that it leaves for the next teacher would depend on them. (Such learners use NumPy's legacy
    generator.)
    """
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


def _train_teacher(shared_inputs: _SharedInputs, index: int, row_ids: NDArray[np.int64], codes: Codes) -> Predictor:
    features, known_codes = shared_inputs.points, np.full(len(shared_inputs.points), MISSING, np.int32)
    known_codes[row_ids] = codes
    if shared_inputs.trainer.visible_features == "own":
        features, known_codes = features.select(row_ids), codes.astype(np.int32)
    raw_labels = PseudoLabels(
        codes=known_codes,
        **_raw_label_fields(shared_inputs.space, len(known_codes)) | {"row_mask": known_codes != MISSING},
    )
    trained: Predictor = shared_inputs.trainer.teacher_learner(index).fit(features, raw_labels)
    return trained


def _raw_label_fields(space: LabelSpace, n_rows: int) -> dict[str, Any]:
    """Return the fields of a release of raw labels for a learner. It and its models stay inside the vault."""
    no_guarantee = Guarantee(math.inf, 0.0, derivation="raw labels, inside the vault")
    return {
        "space": space,
        "guarantee": no_guarantee,
        "mechanism": "raw labels",
        "n_rows": n_rows,
        "confidence": 1 - 1e-6,
    }
