"""Votes of teachers inside the vault, which only a vote mechanism releases.

Proof. Teachers get disjoint rows, assigned without reading labels, and each depends on the labels of its own part alone
(`partition`, `heads`, `networks`). So one label changes one teacher, which casts one vote in each query or none: a
query's counts change by +1 in one class, by -1 in another, by both, or not at all. That is within the neighborhood for
which `mechanisms.vote_aggregators` states the loss of a whole run, up to its caps. The caps are reserved before the
first draw.

With `public=`, teachers vote on rows of other people. If each teacher uses the features and labels of its own part
alone, a whole record reaches one teacher only, and the same argument protects the record. Then every row of the vault
is assigned to a teacher, with a label or without, because the presence of a label may be secret, too.
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
from labeldp.privacy.mechanisms.vote_aggregators import VoteAggregator
from labeldp.privacy.noise.secure_stream import Bits
from labeldp.privacy.teachers.heads import Heads
from labeldp.privacy.teachers.partition import assign_teachers
from labeldp.privacy.teachers.teacher_data import TeacherData, TeacherTrainer
from labeldp.releases.base import Release
from labeldp.releases.derived import PseudoLabels


@dataclass(frozen=True, eq=False)
class TeacherVotes(Mechanism):
    """Train teachers on the labels, let them vote on queries, and release the winners by a vote aggregator.

    Attributes:
        points: The features of the vault's rows: for `Heads` a matrix of rows of length 1, public or from a label-free
            encoder; for `Networks` features of any type.
        queries: The numbers of the rows to vote on, in this order. With `public`, they are numbers of public rows, and
            None means all of them.
        n_teachers: The number of teachers.
        aggregator: The vote aggregator.
        delta: The delta of the guarantee.
        trainer: The trainer of the teachers.
        seed: The seed by which rows are assigned to teachers. It is public and seeds no noise.
        users: The owner of each row. Then all rows of a user have one teacher, and the guarantee holds for users.
        public: Rows of other people, of the same type as `points`. The release is about these rows. It protects whole
            records if no row of `points` depends on another, so no encoder may be trained on the vault's rows.
    """

    trust: ClassVar[Trust] = "central"

    points: Any
    queries: NDArray[np.integer] | None
    n_teachers: int
    aggregator: VoteAggregator
    delta: float = 0.0
    trainer: TeacherTrainer = field(default_factory=Heads)
    seed: int = 0
    users: Any = None
    public: Any = None
    _counts: NDArray[np.int64] | None = field(default=None, repr=False)  # in the copy that `prepare` returns

    def __post_init__(self) -> None:
        check_delta(self.delta)
        # Only objects are compared: a comparison of values would reveal whether a row is among the secret ones.
        if self.public is not None and self.public is self.points:
            raise InputError("The public rows are those of the vault: give rows of other people, or none.")
        if self.users is not None:  # codes are the same in every process, and so is the digest of the request
            object.__setattr__(self, "users", encode_users(self.users, len(self.users)))
        for name in ("points", "queries", "public"):
            value = getattr(self, name)
            if value is not None and not hasattr(value, "batch"):  # features cannot be changed in place
                object.__setattr__(self, name, frozen_copy(value))

    @cached_property
    def epsilon(self) -> float:  # type: ignore[override]
        """The epsilon of a run for any votes, rounded up at the ninth digit."""
        epsilon = self.loss().epsilon(self.delta)
        if isinstance(self.loss(), NoLoss):
            return epsilon
        if not math.isfinite(epsilon):
            raise InputError(
                "These votes have no finite epsilon at this delta: give a delta above 0, 1e-6 for example."
            )
        return float(math.ceil(epsilon * 1e9) / 1e9)

    def loss(self, n_labels: int = 1) -> Loss:
        """Return the loss of one teacher. All labels of a unit must belong to one teacher."""
        if n_labels > 1 and self.users is None:
            raise InputError(
                "A user with several rows would reach several teachers: give users=, which assigns whole users."
            )
        return self.aggregator.loss(*self.aggregator.caps)

    def price(self, n_labels: int = 1) -> tuple[Any, Any]:
        """Return the cost of one teacher, for any number of its labels that a unit owns."""
        if isinstance(self.loss(n_labels), NoLoss):
            return math.inf, 0
        return super().price(1)

    def parameters(self) -> dict[str, Any]:
        """Describe the request by its arrays, the vote mechanism and the trainer."""
        vote_parameters = {
            "aggregator": repr(self.aggregator),
            "trainer": self.trainer.describe(),
            "epsilon": json_number(self.epsilon),
        }
        return super().parameters() | vote_parameters

    def protects(self, unit: Unit) -> Unit:
        """Return "record" if the votes are on rows of other people, else the unit."""
        return "record" if self.public is not None and unit == "label" else unit

    def released_parameters(self) -> dict[str, Any]:
        """Return the parameters without digests of secret records, which would confirm a guess of one record."""
        secret_names = () if self.public is None else ("points", "users")
        return {name: value for name, value in self.parameters().items() if name not in secret_names}

    def check(self, space: LabelSpace, n_rows: int) -> None:
        """Check rows and queries, and that the trainer fits them."""
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
        """Train teachers and count their votes before anything is charged. Equal trainings are done once."""
        vote_parameters = ("aggregator", "delta", "epsilon")
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
        """Draw the noisy winners."""
        responses = self.aggregator.draw(self._counts, bits)  # type: ignore[arg-type]  # set by `prepare`
        return self._build_release(responses.codes, release_fields)

    def _build_release(self, responses: NDArray[np.integer], release_fields: dict[str, Any]) -> PseudoLabels:
        codes = np.full(len(self._candidate_points), MISSING, np.int32)
        codes[slice(None) if self.queries is None else self.queries] = responses
        if self.public is not None:
            release_fields = release_fields | self._record_fields(release_fields)
        return PseudoLabels(**release_fields | {"row_mask": codes != MISSING}, codes=codes, confidence=1 - 1e-6)

    def _record_fields(self, release_fields: dict[str, Any]) -> dict[str, Any]:
        """Return changed fields for a release about public rows that depends on all rows of the vault."""
        uses = tuple(replace(use, packed_rows=None) for use in release_fields["lineage"])
        cost, label_guarantee = joint_cost(uses), release_fields["guarantee"]
        record_guarantee = replace(
            label_guarantee,
            epsilon=float(cost.epsilon),
            delta=float(cost.delta),
            unit=self.protects(label_guarantee.unit),
        )
        return {"n_rows": len(self.public), "lineage": uses, "guarantee": record_guarantee}


class TeacherEnsemble:
    """Votes of teachers that cannot be read. They are counted inside the vault when a release needs them.

    `release` releases their noisy winners. The costs of several mechanisms on the same votes add up in the ledger.
    """

    def __init__(self, vault: Any, arguments: dict[str, Any], derived_from: Sequence[HasLineage] = ()) -> None:
        self._vault, self._arguments = vault, arguments
        self._derived_from = derived_from

    def release(self, aggregator: VoteAggregator, delta: float = 0.0) -> Release:
        """Release the noisy winners by a vote aggregator. Rows without an answer have no label."""
        mechanism = TeacherVotes(aggregator=aggregator, delta=delta, **self._arguments)
        release: Release = self._vault.release(mechanism, derived_from=self._derived_from)
        return release

    def __repr__(self) -> str:
        queries = self._arguments["queries"] if self._arguments["queries"] is not None else self._arguments["public"]
        return f"TeacherEnsemble({self._arguments['n_teachers']} teachers, {len(queries)} queries)"
