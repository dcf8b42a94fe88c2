"""What a ledger records: one entry for each release, plan, step of a plan and change of the budget."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from labeldp.accounting.costs import Cost
from labeldp.core.guarantee import json_number
from labeldp.privacy.mechanisms.base import without_digests


@dataclass(frozen=True)
class Entry:
    """One entry of a ledger.

    Attributes:
        kind: "release", "plan", "step" (a release that a plan has paid for) or "budget" (a new limit).
        request: A digest of what was asked for. Equal requests get one release.
        details: A public description of the entry.
        costs: The cost to a unit, by how many of the released rows the unit owns. Empty for what costs nothing.
        row_set: The SHA-256 of the released rows as `pack_rows` writes them; empty for all rows.
        label: The name of the label column; None if it has none, which matches every name.
        id: A random name.
        status: "reserved", "committed" when the release is stored, or "failed" when its draw raised an exception. All
            of them count as spent.
        created: When the entry was reserved (UTC, ISO 8601).
        finished: When the entry was committed; None before.
    """

    kind: str
    request: str
    details: Mapping[str, Any]
    costs: Mapping[int, Cost] = field(default_factory=dict)
    row_set: str = ""
    label: str | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    status: str = "reserved"
    created: str = field(default_factory=lambda: now())
    finished: str | None = None

    @property
    def payer_id(self) -> str:
        """The id of the entry that was charged for this one: the plan of a step, else the entry itself."""
        return str(self.details["step"]).rpartition(":")[0] if self.kind == "step" else self.id

    def to_redacted_json(self) -> dict[str, Any]:
        """Return the entry without row sets, released values and digests of what was asked, for a copy that travels.

        Features that are public in one training may be secret records in the next.
        """
        max_cost = self.costs.get(max(self.costs, default=0), Cost())
        parameters = self.details.get("parameters")
        own_fields = {
            "id": self.id,
            "kind": self.kind,
            "status": self.status,
            "label": self.label,
            "epsilon": json_number(float(max_cost.epsilon)),
            "delta": float(max_cost.delta),
            "created": self.created,
            "finished": self.finished,
        }
        # The ledger's own facts come first, and a description cannot replace them.
        return {**own_fields, **self.details, **own_fields} | (
            {"parameters": without_digests(parameters)} if parameters else {}
        )


def labels_match(label: str | None, other: str | None) -> bool:
    """Whether two label names may mean the same label: a label without a name matches every name."""
    return label is None or other is None or label == other


def now() -> str:
    """Return the time as entries record it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
