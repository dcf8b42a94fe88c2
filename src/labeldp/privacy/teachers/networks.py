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
from labeldp.learn.classical import Classical
from labeldp.learn.predictor import Predictor, load_predictor
from labeldp.learn.progress import counted
from labeldp.learn.supervised import Supervised
from labeldp.learn.training import Training
from labeldp.privacy.teachers import engines
from labeldp.privacy.teachers.partition import parts
from labeldp.privacy.teachers.settings import describe
from labeldp.privacy.teachers.teacher_data import ABSTAINS, Lesson, tally
from labeldp.releases.derived import Relabelled

_REHEARSED = 64  # rows of the rehearsal


@dataclass(frozen=True)
class Networks:
    """Teachers of any learner, each on its own part.

    A teacher `sees` the features of its own part, or those of all rows, which it can use without labels (FixMatch, as
    in PATE-FM): features are public under label privacy. `engine` is "here", "processes", "ray", or the address of a
    Ray cluster, all of which see raw labels. Finished teachers are written to `keep`, a folder that is as secret as the
    labels, and are not trained again.
    """

    learner: Learner | Classical = field(default_factory=lambda: Supervised(training=Training(30, 32, rate=0.05)))
    sees: Literal["own", "all"] = "own"
    engine: str = "processes"
    workers: int | None = None
    retries: int = 2
    keep: Path | None = None
    progress: bool = False

    def check(self, points: Any, asked: Any, space: LabelSpace, whole_records: bool) -> None:
        """Check the rows, and rehearse: fit made-up labels, to find what would fail for every teacher."""
        if not isinstance(points, Features) or type(points) is not type(asked) or points.shape != asked.shape:
            raise InputError("Network teachers learn from Features, and vote on rows of the same kind and shape.")
        if whole_records and self.sees == "all":
            raise InputError('A teacher that sees all features protects labels only: choose sees="own" with public=.')
        public = asked if whole_records else points  # where records are secret, not even a failure may tell of them
        self.settings()  # says if the learner has no description, before anything is spent
        few = np.arange(min(len(public), _REHEARSED))
        made_up = Relabelled(codes=(few % len(space)).astype(np.int32), **_inside(space, len(few)))
        rehearsal = self._quiet(0, epochs=1).fit(public.select(few), made_up)
        rehearsal.predict_proba(asked.select(np.arange(1)))
        if self.keep is not None:
            with tempfile.TemporaryDirectory() as folder:
                rehearsal.save(Path(folder) / "rehearsal")

    def count(self, lesson: Lesson) -> NDArray[np.int64]:
        """Train what is not kept yet, and count."""
        if self.keep is not None:
            self.keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        jobs = [(number, rows, lesson.codes[rows]) for number, rows in enumerate(parts(lesson.teacher, lesson.codes))]
        with counted(self.progress, "teachers", len(jobs)) as told:
            public = _Public(self, lesson.points, lesson.asked, lesson.space, lesson.points.digest())
            how: dict[str, Any] = {"workers": self.workers, "retries": self.retries}
            winners = engines.run(_teach, public, jobs, self.engine, told=told, **how)
        return tally(winners, len(lesson.space))

    def _quiet(self, number: int, **changes: Any) -> Any:
        """Return the learner of one teacher. Its checkpoints would be raw labels outside of the vault: it has none."""
        if not isinstance(self.learner, Learner):
            return self.learner
        mine = {"seed": self.learner.training.seed + number, "checkpoint": None, "progress": False}
        return self.learner.with_training(**mine | changes)

    def settings(self) -> str:
        """Describe what a teacher depends on beside rows and labels; where it is trained is not of it."""
        return f"{describe(self._quiet(0))} sees {self.sees}"


@dataclass(frozen=True, eq=False)
class _Public:
    """What all workers share: nothing of it depends on labels."""

    how: Networks
    points: Features
    asked: Features
    space: LabelSpace
    mark: str


def _teach(public: _Public, job: tuple[int, NDArray[np.int64], Codes]) -> NDArray[np.int32]:
    """Train one teacher, or find it in the folder, and return the class that it names for each row asked."""
    number, rows, codes = job
    folder = None
    if public.how.keep is not None:
        own = hashlib.sha256(f"{public.how.settings()} {public.mark} {number}".encode())
        own.update(rows.tobytes() + codes.tobytes())
        folder = public.how.keep / f"teacher-{number:05d}-{own.hexdigest()[:16]}"
    kept = load_predictor(folder) if folder is not None and folder.is_dir() else None
    try:
        with warnings.catch_warnings(action="ignore"), _own_chance(number):  # warnings tell of labels, too
            teacher = _train(public, number, rows, codes) if kept is None else kept
            named = teacher.predict_proba(public.asked).argmax(axis=1).astype(np.int32)
            if folder is not None and kept is None:
                teacher.save(folder)
    except (MemoryError, torch.OutOfMemoryError, OSError):
        raise  # not the labels' fault, and worth another try
    except Exception:
        return np.full(len(public.asked), ABSTAINS, np.int32)
    return named


@contextmanager
def _own_chance(number: int) -> Iterator[None]:
    """Give a teacher random numbers of its own.

    A learner without a seed draws from the process's generators. How often it does may depend on its labels, and what
    is left there for the next teacher would depend on them as well. (Such learners draw from NumPy's old generator.)
    """
    before, ours = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(number % 2**32)  # noqa: NPY002
    random.seed(number)
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
        random.setstate(ours)


def _train(public: _Public, number: int, rows: NDArray[np.int64], codes: Codes) -> Predictor:
    features, told = public.points, np.full(len(public.points), MISSING, np.int32)
    told[rows] = codes
    if public.how.sees == "own":
        features, told = features.select(rows), codes.astype(np.int32)
    raw = Relabelled(codes=told, **_inside(public.space, len(told)) | {"active": told != MISSING})
    trained: Predictor = public.how._quiet(number).fit(features, raw)
    return trained


def _inside(space: LabelSpace, rows: int) -> dict[str, Any]:
    """Return the facts of raw labels in the form that learners take. They, and models of them, stay inside."""
    nothing = Guarantee(math.inf, 0.0, derivation="raw labels, inside the vault")
    return {"space": space, "guarantee": nothing, "mechanism": "raw labels", "rows": rows, "confidence": 1 - 1e-6}
