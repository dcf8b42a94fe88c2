"""Teachers' votes behind the vault: trained inside, told through a vote mechanism, never to be read.

Proof. Teachers are dealt disjoint rows without a look at labels, and each depends on the labels of its own part alone
(`partition`, `heads`). So one label changes one teacher, which casts one vote in each query: a query's counts move by
+1 in one class and -1 in another, or not at all. That is the neighbourhood for which `mechanisms.voting` states the
loss of a whole run, up to its caps. The caps are reserved before the first teacher is trained.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.bits import Bits
from labeldp.errors import InputError
from labeldp.guarantees import Trust, check_delta
from labeldp.labels import MISSING, Codes, LabelSpace
from labeldp.losses import Loss
from labeldp.mechanisms.base import Mechanism, private_copy
from labeldp.mechanisms.voting import VoteMechanism
from labeldp.releases.base import Release
from labeldp.releases.derived import Relabelled
from labeldp.teach.heads import Heads
from labeldp.teach.partition import deal


@dataclass(frozen=True, eq=False)
class TeacherVotes(Mechanism):
    """Train teachers on the labels, let them vote on query rows, and tell the winners by `votes`.

    `points` holds public rows of length 1, from features or a label-free encoder, for all rows of the vault; `queries`
    are the rows to ask about, in the order in which they are asked. `seed` deals the rows out: it is public, no noise.
    With `users`, whole users are dealt out, and the guarantee holds for users.
    """

    trust: ClassVar[Trust] = "central"

    points: NDArray[np.floating]
    queries: NDArray[np.integer]
    teachers: int
    votes: VoteMechanism
    delta: float = 0.0
    heads: Heads = field(default_factory=Heads)
    seed: int = 0
    users: Any = None

    def __post_init__(self) -> None:
        check_delta(self.delta)
        object.__setattr__(self, "points", private_copy(self.points))
        object.__setattr__(self, "queries", private_copy(self.queries))
        if self.users is not None:
            object.__setattr__(self, "users", private_copy(self.users))

    @cached_property
    def epsilon(self) -> float:  # type: ignore[override]
        """What a run costs a label, whatever the votes are; the last digit is rounded up."""
        epsilon = self.loss().epsilon(self.delta)
        if not math.isfinite(epsilon):
            raise InputError(
                "These votes have no finite epsilon at this delta: give a delta above 0, 1e-6 for example."
            )
        return float(math.ceil(epsilon * 1e9) / 1e9)

    def loss(self, labels: int = 1) -> Loss:
        """Return the loss of one teacher: a unit with several labels must not reach more than one."""
        if labels > 1 and self.users is None:
            raise InputError("A user with several rows would reach several teachers: give users=, to deal users out.")
        return self.votes.loss(*self.votes.caps)

    def price(self, labels: int = 1) -> tuple[Any, Any]:
        """Return the cost of one teacher, however many labels of it a unit owns."""
        self.loss(labels)
        return super().price(1)

    def parameters(self) -> dict[str, Any]:
        """Describe the request; the mechanism and the heads by their own settings."""
        plain = super().parameters()
        return plain | {"votes": repr(self.votes), "heads": repr(self.heads), "epsilon": self.epsilon}

    def check(self, space: LabelSpace, rows: int) -> None:
        """Check points and queries."""
        if self.points.ndim != 2 or len(self.points) != rows or not np.isfinite(self.points).all():
            raise InputError(f"points must be a finite matrix with {rows} rows.")
        whole = self.queries.ndim == 1 and np.issubdtype(self.queries.dtype, np.integer) and self.queries.size
        if not whole or not 0 <= self.queries.min() <= self.queries.max() < rows:
            raise InputError(f"queries must be at least one row number from 0 to {rows - 1}.")
        if np.unique(self.queries).size < self.queries.size:
            raise InputError("A row is asked about twice: name each query once.")
        deal(np.ones(rows, bool), self.teachers, self.seed, self.users)

    def draw(self, codes: Codes, common: dict[str, Any], bits: Bits) -> Relabelled:
        """Train, count, and answer."""
        classes = len(common["space"])
        teacher = deal(codes != MISSING, self.teachers, self.seed, self.users)
        weights = self.heads.fit(self.points, codes, teacher, classes)
        counts = self.heads.vote(weights, self.points[self.queries])
        answers = self.votes.draw(counts, bits)
        told = np.full(codes.size, MISSING, np.int32)
        told[self.queries] = answers.codes
        return Relabelled(**common | {"active": told != MISSING}, codes=told, confidence=1 - 1e-6)


@dataclass(frozen=True, eq=False)
class SealedVotes:
    """Votes of teachers that nobody can read: they are counted inside a draw, and only there.

    `release` tells their noisy winners; several mechanisms on the same votes add up in the ledger.
    """

    _vault: Any
    _asked: dict[str, Any]

    def release(self, votes: VoteMechanism, delta: float = 0.0) -> Release:
        """Tell the winners by a vote mechanism; rows without an answer have no label."""
        told: Release = self._vault.release(TeacherVotes(votes=votes, delta=delta, **self._asked))
        return told

    def __repr__(self) -> str:
        return f"SealedVotes({self._asked['teachers']} teachers, {len(self._asked['queries'])} queries)"
