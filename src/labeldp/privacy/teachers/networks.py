"""A model for each teacher: any learner of the library, on the labels of one part, in worker processes or on Ray.

Nothing that depends on labels is shared. Every teacher has a training of its own, whose seed is its number, and is a
function of public facts and of its own labels alone: neither a clipping norm nor early stopping nor class weights are
common to two of them. Where a learner fails on some labels (a scikit-learn classifier that saw one class only), in
training or when it is asked, that teacher abstains: an error would tell the world about its labels, and an abstention
is a vote less, which the noise covers. So would a warning, and none is shown. What is wrong whatever the labels are, a
rehearsal on made-up labels finds before anything is spent.
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

_REHEARSAL_ROWS = 64  # rows of the rehearsal


@dataclass(frozen=True)
class Networks:
    """Teachers of any learner, each on its own part.

    A teacher `sees` the features of its own part, or those of all rows, which it can use without labels (FixMatch, as
    in PATE-FM): features are public under label privacy. `engine` is "here", "processes", "ray", or the address of a
    Ray cluster, all of which see raw labels. Finished teachers are written to `keep`, a folder that is as secret as the
    labels, and are not trained again.
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
        """Check the rows, and rehearse: fit made-up labels, to find what would fail for every teacher."""
        if (
            not isinstance(points, Features)
            or type(points) is not type(query_points)
            or points.shape != query_points.shape
        ):
            raise InputError("Network teachers learn from Features, and vote on rows of the same kind and shape.")
        if whole_records and self.visible_features == "all":
            raise InputError('A teacher that sees all features protects labels only: choose sees="own" with public=.')
        public = (
            query_points if whole_records else points
        )  # where records are secret, not even a failure may tell of them
        self.describe()  # says if the learner has no description, before anything is spent
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
        """Train what is not kept yet, and count."""
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
        """Return the learner of one teacher. Its checkpoints would be raw labels outside of the vault: it has none."""
        if not isinstance(self.learner, Learner):
            return self.learner
        overrides = {"seed": self.learner.training.seed + index, "checkpoint": None, "progress": False}
        return self.learner.with_training(**overrides | changes)

    def describe(self) -> str:
        """Describe what a teacher depends on beside rows and labels; where it is trained is not of it."""
        return f"{describe(self.teacher_learner(0))} sees {self.visible_features}"


@dataclass(frozen=True, eq=False)
class _SharedInputs:
    """What all workers share: nothing of it depends on labels."""

    trainer: Networks
    points: Features
    query_points: Features
    space: LabelSpace
    points_digest: str


def _train_and_vote(shared_inputs: _SharedInputs, job: tuple[int, NDArray[np.int64], Codes]) -> NDArray[np.int32]:
    """Train one teacher, or find it in the folder, and return the class that it names for each row asked."""
    index, row_ids, codes = job
    folder = None
    if shared_inputs.trainer.checkpoint_folder is not None:
        digest = hashlib.sha256(f"{shared_inputs.trainer.describe()} {shared_inputs.points_digest} {index}".encode())
        digest.update(row_ids.tobytes() + codes.tobytes())
        folder = shared_inputs.trainer.checkpoint_folder / f"teacher-{index:05d}-{digest.hexdigest()[:16]}"
    stored = load_predictor(folder) if folder is not None and folder.is_dir() else None
    try:
        with warnings.catch_warnings(action="ignore"), _isolated_random_state(index):  # warnings tell of labels, too
            teacher = _train_teacher(shared_inputs, index, row_ids, codes) if stored is None else stored
            votes = teacher.predict_proba(shared_inputs.query_points).argmax(axis=1).astype(np.int32)
            if folder is not None and stored is None:
                teacher.save(folder)
    except (MemoryError, torch.OutOfMemoryError, OSError):
        raise  # not the labels' fault, and worth another try
    except Exception:
        return np.full(len(shared_inputs.query_points), ABSTAIN, np.int32)
    return votes


@contextmanager
def _isolated_random_state(seed: int) -> Iterator[None]:
    """Give a teacher random numbers of its own.

    A learner without a seed draws from the process's generators. How often it does may depend on its labels, and what
    is left there for the next teacher would depend on them as well. (Such learners draw from NumPy's old generator.)
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
    """Return the facts of raw labels in the form that learners take. They, and models of them, stay inside."""
    no_guarantee = Guarantee(math.inf, 0.0, derivation="raw labels, inside the vault")
    return {
        "space": space,
        "guarantee": no_guarantee,
        "mechanism": "raw labels",
        "n_rows": n_rows,
        "confidence": 1 - 1e-6,
    }
