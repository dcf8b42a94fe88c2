"""Teachers' votes behind the vault: trained inside, told through a vote mechanism, never to be read.

Proof. Teachers are dealt disjoint rows without a look at labels, and each depends on the labels of its own part alone
(`partition`, `heads`, `networks`). So one label changes one teacher, which casts one vote in each query or none: a
query's counts move by +1 in one class, by -1 in another, by both, or not at all. That is within the neighbourhood for
which `mechanisms.voting` states the loss of a whole run, up to its caps. The caps are reserved before the first draw.

With `public=`, teachers vote on rows of other people. Where each teacher saw nothing but its own part, features and
labels, a whole record reaches one teacher only, and the same argument protects the record. Every row of the vault is
then dealt out, labelled or not: who has a label may be a secret, too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from labeldp.accounting.costs import encode_users, joint_cost
from labeldp.accounting.lineage import HasLineage
from labeldp.accounting.losses import Loss, NoLoss
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Trust, Unit, check_delta, json_number
from labeldp.core.label_space import MISSING, Codes, LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, frozen_copy
from labeldp.privacy.mechanisms.voting import VoteMechanism
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.privacy.teachers.heads import Heads
from labeldp.privacy.teachers.partition import assign_teachers
from labeldp.privacy.teachers.teacher_data import TeacherData, TeacherTrainer
from labeldp.releases.base import Release
from labeldp.releases.derived import PseudoLabels


@dataclass(frozen=True, eq=False)
class TeacherVotes(Mechanism):
    """Train teachers on the labels, let them vote on query rows, and tell the winners by `votes`.

    `points` holds the vault's rows as teachers see them: for `Heads` a matrix of rows of length 1, public or from a
    label-free encoder; for `Networks` features of any kind. `queries` are the rows to ask about, in the order in which
    they are asked. With `public`, rows of other people of the same kind as `points`, the queries are among those (None:
    all of them), the release is about them, and what is protected is the whole record, if no row of `points` depends on
    another (so no encoder that saw the vault's rows). `seed` deals the rows out: it is public, no noise. With `users`,
    whole users are dealt out, and the guarantee holds for users.
    """

    trust: ClassVar[Trust] = "central"

    points: Any
    queries: NDArray[np.integer] | None
    n_teachers: int
    votes: VoteMechanism
    delta: float = 0.0
    trainer: TeacherTrainer = field(default_factory=Heads)
    seed: int = 0
    users: Any = None
    public: Any = None
    _counts: NDArray[np.int64] | None = field(default=None, repr=False)  # in the vault's own copy only

    def __post_init__(self) -> None:
        check_delta(self.delta)
        # Whether some rows are among the secret ones must not be told: only objects are compared, never what they hold.
        if self.public is not None and self.public is self.points:
            raise InputError("The public rows are those of the vault: give rows of other people, or none.")
        if self.users is not None:  # numbers are the same in every process: the same request stays the same
            object.__setattr__(self, "users", encode_users(self.users, len(self.users)))
        for name in ("points", "queries", "public"):
            value = getattr(self, name)
            if value is not None and not hasattr(value, "batch"):  # features have no way to be changed in place
                object.__setattr__(self, name, frozen_copy(value))

    @cached_property
    def epsilon(self) -> float:  # type: ignore[override]
        """What a run costs a label, whatever the votes are; the last digit is rounded up."""
        epsilon = self.loss().epsilon(self.delta)
        if isinstance(self.loss(), NoLoss):
            return epsilon
        if not math.isfinite(epsilon):
            raise InputError(
                "These votes have no finite epsilon at this delta: give a delta above 0, 1e-6 for example."
            )
        return float(math.ceil(epsilon * 1e9) / 1e9)

    def loss(self, n_labels: int = 1) -> Loss:
        """Return the loss of one teacher: a unit with several labels must not reach more than one."""
        if n_labels > 1 and self.users is None:
            raise InputError("A user with several rows would reach several teachers: give users=, to deal users out.")
        return self.votes.loss(*self.votes.caps)

    def price(self, n_labels: int = 1) -> tuple[Any, Any]:
        """Return the cost of one teacher, however many labels of it a unit owns."""
        if isinstance(self.loss(n_labels), NoLoss):
            return math.inf, 0
        return super().price(1)

    def parameters(self) -> dict[str, Any]:
        """Describe the request; the mechanism and the teaching by their own settings."""
        vote_parameters = {
            "votes": repr(self.votes),
            "trainer": self.trainer.describe(),
            "epsilon": json_number(self.epsilon),
        }
        return super().parameters() | vote_parameters

    def protects(self, unit: Unit) -> Unit:
        """Return the whole record, where the votes are on rows of other people."""
        return "record" if self.public is not None and unit == "label" else unit

    def released_parameters(self) -> dict[str, Any]:
        """Leave digests of secret records out: who has all but one of them could try what that one is."""
        secret_names = () if self.public is None else ("points", "users")
        return {name: value for name, value in self.parameters().items() if name not in secret_names}

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check rows and queries, and that the teaching can learn from them."""
        if len(self.points) != n_rows:
            raise InputError(f"There are {len(self.points)} points for {n_rows} rows of the vault.")
        if self.public is not None and not len(self.public):
            raise InputError("There is no public row to vote on.")
        if self.queries is not None:
            self._check_queries(self.queries, len(self._candidate_points))
        elif self.public is None:
            raise InputError("There is nothing to vote on: name queries, rows of the vault, or give public rows.")
        assign_teachers(np.ones(n_rows, bool), self.n_teachers, self.seed, self.users)
        self.trainer.check(self.points, self._query_points, space, self.public is not None)

    @staticmethod
    def _check_queries(queries: NDArray[np.integer], n_rows: int) -> None:
        is_index_array = queries.ndim == 1 and np.issubdtype(queries.dtype, np.integer) and queries.size
        if not is_index_array or not 0 <= queries.min() <= queries.max() < n_rows:
            raise InputError(f"queries must be at least one row number from 0 to {n_rows - 1}.")
        if np.unique(queries).size < queries.size:
            raise InputError("A row is asked about twice: name each query once.")

    @property
    def _candidate_points(self) -> Any:
        return self.points if self.public is None else self.public

    @property
    def _query_points(self) -> Any:
        candidates = self._candidate_points
        if self.queries is None:
            return candidates
        return candidates[self.queries] if isinstance(candidates, np.ndarray) else candidates.select(self.queries)

    def prepare(self, codes: Codes, space: LabelSpace, cache: dict[Any, Any]) -> "TeacherVotes":
        """Train and count, before anything is charged; several mechanisms on the same votes train once."""
        vote_parameters = ("votes", "delta", "epsilon")
        training_parameters = {name: value for name, value in self.parameters().items() if name not in vote_parameters}
        key = repr(training_parameters), np.packbits(codes != MISSING).tobytes()
        if key not in cache:
            row_mask = codes != MISSING if self.public is None else np.ones(codes.size, bool)
            teacher_ids = assign_teachers(row_mask, self.n_teachers, self.seed, self.users)
            counts = self.trainer.count_votes(TeacherData(self.points, codes, teacher_ids, self._query_points, space))
            cache.clear()
            cache[key] = counts
        return replace(self, _counts=cache[key])

    def draw(self, codes: Codes, release_fields: dict[str, Any], bits: Bits) -> PseudoLabels:
        """Tell the winners."""
        responses = self.votes.draw(self._counts, bits)  # type: ignore[arg-type]  # prepared before
        return self._build_release(responses.codes, release_fields)

    def _build_release(self, responses: NDArray[np.integer], release_fields: dict[str, Any]) -> PseudoLabels:
        codes = np.full(len(self._candidate_points), MISSING, np.int32)
        codes[slice(None) if self.queries is None else self.queries] = responses
        if self.public is not None:
            release_fields = release_fields | self._record_fields(release_fields)
        return PseudoLabels(**release_fields | {"row_mask": codes != MISSING}, codes=codes, confidence=1 - 1e-6)

    def _record_fields(self, release_fields: dict[str, Any]) -> dict[str, Any]:
        """Change the facts of a release: it speaks of public rows, and rests on all rows of the vault."""
        uses = tuple(replace(use, rows=None) for use in release_fields["lineage"])
        cost, label_guarantee = joint_cost(uses), release_fields["guarantee"]
        record_guarantee = replace(
            label_guarantee,
            epsilon=float(cost.epsilon),
            delta=float(cost.delta),
            unit=self.protects(label_guarantee.unit),
        )
        return {"n_rows": len(self.public), "lineage": uses, "guarantee": record_guarantee}


class SealedVotes:
    """Votes of teachers that nobody can read: they are counted inside the vault, when a release needs them.

    `release` tells their noisy winners; several mechanisms on the same votes add up in the ledger.
    """

    def __init__(self, vault: Any, arguments: dict[str, Any], derived_from: Sequence[HasLineage] = ()) -> None:
        self._vault, self._arguments = vault, arguments
        self._derived_from = derived_from

    def release(self, votes: VoteMechanism, delta: float = 0.0) -> Release:
        """Tell the winners by a vote mechanism; rows without an answer have no label."""
        mechanism = TeacherVotes(votes=votes, delta=delta, **self._arguments)
        release: Release = self._vault.release(mechanism, derived_from=self._derived_from)
        return release

    def __repr__(self) -> str:
        queries = self._arguments["queries"] if self._arguments["queries"] is not None else self._arguments["public"]
        return f"SealedVotes({self._arguments['n_teachers']} teachers, {len(queries)} queries)"
