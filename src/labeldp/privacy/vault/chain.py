"""The hash chain of a ledger: an append-only list of events, each with a digest of itself and of all earlier events.

A reservation, a commit, a failed draw, a change of the budget and a binding to a data set are one event each. The
ledger stores the number of events and the last digest a second time, so that a missing last event is noticed as well.

The chain protects against accidents: a flipped bit, a torn write, a lost page, an entry that was edited or deleted by
hand. It does not protect against an owner who rewrites the whole chain, because it holds no secret key.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from labeldp.accounting.costs import Cost
from labeldp.core.errors import LedgerError
from labeldp.core.guarantee import Budget
from labeldp.privacy.vault.entries import Entry, labels_match
from labeldp.privacy.vault.identity import Identity

INITIAL_DIGEST = hashlib.sha256(b"labeldp ledger").hexdigest()
RESERVATION_TYPES = ("release", "plan", "step")
EVENT_TYPES = ("bind", "budget", "commit", "fail", *RESERVATION_TYPES)


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One link of the chain. Every field is text, so that the digest covers exactly what is stored.

    Attributes:
        number: The place in the chain, from 1.
        kind: One of `EVENT_TYPES`.
        entry: The id of the entry that the event reserves, commits or records; empty for a binding.
        request: The digest of a reservation's request; empty for other events.
        label: The name of the label with a leading "=", or empty for a label without a name.
        costs: A reservation's costs, as JSON.
        row_set: The SHA-256 of a reservation's packed rows; empty for all rows.
        body: The details of the entry or the facts of a binding, as JSON.
        at: The time.
        digest: The SHA-256 of all other fields and of the previous digest.
    """

    number: int
    kind: str
    entry: str
    request: str
    label: str
    costs: str
    row_set: str
    body: str
    at: str
    digest: str = ""

    def digest_after(self, previous_digest: str) -> str:
        """Return the digest of this event in a chain whose last digest is `previous_digest`."""
        fields = (self.kind, self.entry, self.request, self.label, self.costs, self.row_set, self.body, self.at)
        lengths = ",".join([str(len(field)) for field in fields])
        text = f"{previous_digest}:{self.number}:{lengths}:{''.join(fields)}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Chain:
    """The verified events of a ledger, and its facts, entries by request, and charges.

    A chain only grows. `extend` verifies new events, so that a process reads only the events that are new to it.
    `charges` lists the row set and the costs of every reservation, in order.
    """

    def __init__(self) -> None:
        self.n_events, self.digest = 0, INITIAL_DIGEST
        self.facts: dict[str, Any] = {}
        self.charges: list[tuple[str, str]] = []
        self.step_entries: dict[str, str] = {}  # the entry that drew each step of a plan
        self._entry_events: dict[str, LedgerEvent] = {}  # by entry: its reservation, or the change of the budget
        self._commit_events: dict[str, LedgerEvent] = {}
        self._failed_entries: set[str] = set()
        self._entry_cache: dict[str, Entry] = {}  # of the entries that were read before
        self._entries_by_request: dict[str, list[str]] = {}

    def next_event(self, kind: str, body: Mapping[str, Any], at: str, **fields: str) -> LedgerEvent:
        """Return a new event that follows the last one; it is not part of the chain yet.

        Args:
            kind: One of `EVENT_TYPES`.
            body: The details or facts, which `json` can write.
            at: The time.
            **fields: Other fields of `LedgerEvent`; fields that are not given are empty.

        Returns:
            The event with its number and digest.
        """
        text_fields = {"entry": "", "request": "", "label": "", "costs": "", "row_set": ""} | fields
        event = LedgerEvent(self.n_events + 1, kind, body=json.dumps(body), at=at, **text_fields)
        return replace(event, digest=event.digest_after(self.digest))

    def extend(self, event: LedgerEvent) -> None:
        """Add the next event.

        Args:
            event: An event as it is stored.

        Raises:
            ValueError: The event does not follow the last one, or its digest does not fit.
        """
        if (
            event.number != self.n_events + 1
            or event.digest != event.digest_after(self.digest)
            or event.kind not in EVENT_TYPES
        ):
            raise ValueError(f"event {self.n_events + 1} does not follow the one before")
        if not self.facts and event.kind != "bind":
            raise ValueError("the chain does not begin with a binding")
        if (
            event.kind in (*RESERVATION_TYPES, "budget")
            and self._entry_events.get(event.entry, event).number != event.number
        ):
            raise ValueError("two entries have one id")
        if event.kind in RESERVATION_TYPES:
            if parse_costs(event.costs):  # first, so that an interruption never loses a charge
                self.charges.append((event.row_set, event.costs))
            self._entry_events[event.entry] = event
            self._entries_by_request.setdefault(event.request, []).append(event.entry)
            if event.kind == "step":
                self.step_entries[json.loads(event.body)["step"]] = event.entry
        elif event.kind == "commit":
            self._commit_events[event.entry] = event
            self._entry_cache.pop(event.entry, None)
        elif event.kind == "fail":
            self._failed_entries.add(event.entry)
            self._entry_cache.pop(event.entry, None)
        elif event.kind == "budget":
            self._entry_events[event.entry] = event
            self.facts = _check_facts(self.facts | {"budget": json.loads(event.body)["to"]})
        else:
            self.facts = _check_facts(json.loads(event.body))
        self.n_events, self.digest = event.number, event.digest

    @property
    def has_entries(self) -> bool:
        """Whether there is an entry. The first entry binds the ledger to its data set permanently."""
        return bool(self._entry_events)

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        return [self.entry(entry_id) for entry_id in list(self._entry_events)]

    def entry(self, entry_id: str) -> Entry:
        """Return an entry by its id; KeyError if there is none."""
        cached = self._entry_cache.get(entry_id)
        if cached is None:
            cached = self._entry_cache[entry_id] = _read_entry(
                self._entry_events[entry_id], self._commit_events.get(entry_id), entry_id in self._failed_entries
            )
        return cached

    def has_entry(self, entry_id: str) -> bool:
        """Whether there is an entry of this id."""
        return entry_id in self._entry_events

    def is_committed(self, entry_id: str) -> bool:
        """Whether there is an entry of this id and its release is stored."""
        return entry_id in self._commit_events

    def payload_digest(self, entry_id: str) -> str:
        """Return the SHA-256 of the stored release of a committed entry."""
        return str(json.loads(self._commit_events[entry_id].body)["sha256"])

    def entries_for_request(self, request: str, label: str | None) -> list[Entry]:
        """Return the entries of a request for a label: those of the same name first, then those without a name."""
        entries = [self.entry(entry_id) for entry_id in self._entries_by_request.get(request, [])]
        return sorted((e for e in entries if labels_match(e.label, label)), key=lambda e: e.label != label)

    @property
    def label_names(self) -> list[str]:
        """The names of all labels that this ledger counts: those of its binding and of its entries."""
        names = [
            self.facts.get("identity", {}).get("label"),
            *(decode_label(e.label) for e in self._entry_events.values()),
        ]
        return [name for name in dict.fromkeys(names) if name is not None]


def _check_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a binding; raise an exception if a fact has another type or is out of range."""
    identity, budget = facts["identity"], facts["budget"]
    Budget(budget["epsilon"], budget["delta"], budget["composition"])
    columns = Identity(**identity).column_digests
    texts = [identity["name"], identity["label"] or "", facts["unit"], facts["mark"], facts["owners"] or ""]
    texts += [identity.get("digest") or "", *(columns.values() if columns else ())]
    n_rows, order = identity["n_rows"], budget["order"]
    if not all(isinstance(text, str) for text in texts) or facts["unit"] not in ("label", "user"):
        raise TypeError("a fact is of another type")
    if type(n_rows) is not int or not 0 < n_rows < 1 << 48 or (order is not None and not 1 < order < math.inf):
        raise ValueError("a fact is out of range")
    return facts


def _read_entry(event: LedgerEvent, commit: LedgerEvent | None, failed: bool) -> Entry:
    details = _read_details(event)
    final_event = commit or (event if event.kind == "budget" else None)
    return Entry(
        kind=event.kind,
        request=event.request,
        details=details,
        costs=parse_costs(event.costs),
        row_set=event.row_set,
        label=decode_label(event.label),
        id=event.entry,
        status="committed" if final_event else "failed" if failed else "reserved",
        created=event.at,
        finished=final_event.at if final_event else None,
    )


def _read_details(event: LedgerEvent) -> dict[str, Any]:
    """Read the description of an entry. A malformed description is damage, even with a fitting digest."""
    with suppress(ValueError, RecursionError):
        details = json.loads(event.body)
        if (
            isinstance(details, dict)
            and isinstance(details.get("mechanism"), str)
            and isinstance(details.get("released", 0), int)
            and isinstance(details.get("parameters") or {}, dict)
        ):
            return details
    raise LedgerError("An entry of the ledger is damaged: restore the ledger from a backup.")


def decode_label(text: str) -> str | None:
    """Read the label of an event. A leading "=" distinguishes an empty name from no name."""
    return text[1:] if text else None


def encode_label(label: str | None) -> str:
    """Write the label of an event."""
    return "" if label is None else f"={label}"


def write_costs(costs: Mapping[int, Cost]) -> str:
    """Write costs as an event stores them; empty if there are none."""
    return json.dumps({str(m): cost.to_json() for m, cost in costs.items()}) if costs else ""


@lru_cache(maxsize=1 << 14)
def parse_costs(text: str) -> Mapping[int, Cost]:
    """Read what `write_costs` wrote."""
    costs = {int(m): Cost.from_json(cost) for m, cost in json.loads(text).items()} if text else {}
    if any(m < 1 for m in costs):
        raise ValueError("a cost is that of no row")
    return costs
