"""Entries of a ledger, one for each release, plan, step of a plan and change of the budget, and digests of requests."""

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from labeldp.accounting.costs import Cost
from labeldp.core.guarantee import json_number
from labeldp.core.label_space import LabelSpace
from labeldp.privacy.mechanisms.base import Mechanism, without_digests


@dataclass(frozen=True)
class Entry:
    """One entry of a ledger.

    Attributes:
        kind: "release", "plan", "step" (a release that a plan has paid for) or "budget" (a new limit).
        request: The digest of the request, from `hash_request`. Equal requests get one release.
        details: A public description of the entry.
        costs: The cost to a unit, by number of released rows that the unit owns. Empty for an entry without cost.
        row_set: The SHA-256 of the released rows as `pack_rows` writes them; empty for all rows.
        label: The name of the label; None for a label without a name, which matches every name.
        id: A random identifier.
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
        """Return the entry for a published copy, without row sets, released values and digests of arrays.

        Features that are public in one training may be secret records in another.
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
        # The description cannot replace a field of the entry: `own_fields` is merged last, and comes first in order.
        return {**own_fields, **self.details, **own_fields} | (
            {"parameters": without_digests(parameters)} if parameters else {}
        )


def describe_request(mechanism: Mechanism, space: LabelSpace, step: str = "") -> dict[str, Any]:
    """Describe a request without its rows. Two requests with equal descriptions and rows get one release.

    Args:
        mechanism: The mechanism with its parameters.
        space: The classes of the labels.
        step: The name of a plan's step; empty for a release of its own.
    """
    mechanism_type, parameters = type(mechanism), mechanism.parameters()
    # A class of another package may have the name of a class of this one.
    name = (
        mechanism_type.__name__
        if mechanism_type.__module__.startswith("labeldp.")
        else f"{mechanism_type.__module__}.{mechanism_type.__qualname__}"
    )
    return {"mechanism": name, "parameters": parameters, "classes": list(space), "step": step}


def hash_request(request: Mapping[str, Any]) -> str:
    """Return the digest of a request. It depends on names of classes and fields: see `schema.FORMAT_VERSION`."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=repr).encode()).hexdigest()


def labels_match(label: str | None, other: str | None) -> bool:
    """Whether two label names may mean the same label: a label without a name matches every name."""
    return label is None or other is None or label == other


def now() -> str:
    """Return the time as entries record it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
