"""The ledger: what was spent on one data set, kept in one SQLite file beside the data.

An entry is reserved, in a transaction of its own, before any noise is drawn, and committed together with the
release. What is reserved counts as spent, so a process that dies in between costs its budget and no more.
"""

import json
import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout

from labeldp.errors import InputError, LedgerError
from labeldp.guarantees import plain_number
from labeldp.mechanisms.base import without_digests
from labeldp.spending import Cost

FORMAT = 2
_PART = 1 << 26  # bytes of a release in one database row: SQLite holds less than 1 GB in one
_WAIT_SECONDS = 600

_meta = sa.MetaData()
_dataset = sa.Table("labeldp_dataset", _meta, sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.Text))
_entries = sa.Table(
    "labeldp_entries",
    _meta,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, unique=True, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False, index=True),
    sa.Column("details", sa.Text, nullable=False),
    sa.Column("costs", sa.Text, nullable=False),
    sa.Column("rows", sa.LargeBinary),
    sa.Column("created", sa.Text, nullable=False),
    sa.Column("finished", sa.Text),
)
_payloads = sa.Table(
    "labeldp_payloads",
    _meta,
    sa.Column("entry", sa.Text, primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)


@dataclass(frozen=True)
class Entry:
    """One line of the ledger. `costs` gives the cost to a unit by how many of the released rows it owns."""

    kind: str  # "release", "plan", "step" (a release that a plan has paid for) or "budget" (a new limit)
    request: str
    details: dict[str, Any]
    costs: dict[int, Cost] = field(default_factory=dict)
    rows: bytes | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    status: str = "reserved"
    created: str = field(default_factory=lambda: _now())
    finished: str | None = None

    def redacted(self) -> dict[str, Any]:
        """Return the entry without row sets, released values and digests of what was asked, for a copy that travels.

        Features that were public to one training may be secret records to the next.
        """
        worst = self.costs.get(max(self.costs, default=0), Cost())
        told = self.details.get("parameters")
        return {
            "id": self.id,
            "kind": self.kind,
            "status": self.status,
            "epsilon": plain_number(float(worst.epsilon)),
            "delta": float(worst.delta),
            "created": self.created,
            "finished": self.finished,
            **self.details,
            **({"parameters": without_digests(told)} if told else {}),
        }


class Ledger:
    """A ledger in a file, or in memory without `path`."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self._owner_process = os.getpid()
        self._threads = threading.RLock()
        self._held = False  # whether this object holds the file's lock already
        target = ":memory:" if self.path is None else str(self.path)
        self._engine = sa.create_engine(
            "sqlite://",
            creator=lambda: sqlite3.connect(target, timeout=60, isolation_level=None, check_same_thread=False),
            poolclass=sa.StaticPool if self.path is None else sa.NullPool,
        )
        sa.event.listen(self._engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN IMMEDIATE"))
        if self.path is None:
            _meta.create_all(self._engine)

    def open(self, facts: dict[str, Any], same: Callable[[dict[str, Any]], str | None]) -> dict[str, Any]:
        """Bind a new ledger to `facts`, or return the facts of an old one after `same` finds no complaint.

        One without an entry, as a command leaves that was refused, has nothing to remember, and is bound anew, with
        another mark.
        """
        with self.exclusive(), self._transaction() as db:
            if self.path is not None:
                self._create_or_recognise(db)
            known = self._facts(db)
            if known and known.get("format") != FORMAT:
                raise LedgerError(f"{self.path} was written by another version of labeldp: use that version.")
            if known and self._read(db):
                complaint = same(known)
                if complaint:
                    raise LedgerError(f"{self.path or 'This ledger'} {complaint}")
                return known
            new = facts | {"format": FORMAT}
            if known | {"mark": None} == new | {"mark": None}:
                return known
            db.execute(_dataset.delete())
            db.execute(_dataset.insert(), [{"key": k, "value": json.dumps(v)} for k, v in new.items()])
            return new

    def facts(self) -> dict[str, Any]:
        """Return what the ledger is bound to."""
        if self.path is not None and not self.path.is_file():
            raise LedgerError(f"There is no ledger {self.path}.")
        with self._transaction() as db:
            self._recognise(db)
            return self._facts(db)

    def set_fact(self, key: str, value: Any) -> None:
        """Change one fact (the budget; the caller has recorded an entry that says so)."""
        with self._transaction() as db:
            db.execute(_dataset.delete().where(_dataset.c.key == key))
            db.execute(_dataset.insert().values(key=key, value=json.dumps(value)))

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the ledger against all other processes and threads; the system lets go if this process dies.

        It may be held again inside.
        """
        if self.path is None and os.getpid() != self._owner_process:
            raise LedgerError("A ledger in memory cannot follow a fork: give the vault a ledger file.")
        with self._threads:
            if self.path is None or self._held:
                yield
                return
            if not self.path.parent.is_dir():
                raise InputError(f"There is no folder {self.path.parent} for the ledger.")
            if self.path.is_dir():
                raise LedgerError(f"{self.path} is a folder, not a ledger.")
            if self.path.is_file() and self.path.stat().st_size:
                self.facts()  # or it says that it is none, before there is a lock beside it
            lock = self._acquire(FileLock(f"{self.path}.lock", timeout=_WAIT_SECONDS))
            self._held = True
            try:
                yield
            finally:
                self._held = False
                lock.release()

    def _acquire(self, lock: Any) -> Any:
        try:
            lock.acquire()
        except Timeout:
            raise LedgerError(f"{self.path} has been in use for {_WAIT_SECONDS} s: try again later.") from None
        except OSError as problem:
            raise LedgerError(
                f"{self.path} cannot be locked ({problem.strerror}): name a ledger in a folder that can be written to "
                "(--ledger)."
            ) from None
        return lock

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        with self._transaction() as db:
            return self._read(db)

    def reserve(self, entry: Entry, check: Callable[[list[Entry], dict[str, Any]], None]) -> None:
        """Write `entry` as reserved if `check` accepts it beside all earlier entries and facts: one transaction."""
        with self._transaction() as db:
            check(self._read(db), self._facts(db))
            db.execute(
                _entries.insert().values(
                    id=entry.id,
                    kind=entry.kind,
                    status="reserved",
                    request=entry.request,
                    details=json.dumps(entry.details),
                    costs=json.dumps({m: cost.to_json() for m, cost in entry.costs.items()}),
                    rows=entry.rows,
                    created=entry.created,
                )
            )

    def commit(self, entry: Entry, payload: bytes = b"") -> None:
        """Store what was drawn and mark the entry as committed: one transaction."""
        with self._transaction() as db:
            for part, start in enumerate(range(0, len(payload), _PART)):
                data = payload[start : start + _PART]
                db.execute(_payloads.insert().values(entry=entry.id, part=part, data=data))
            change = _entries.update().where(_entries.c.id == entry.id)
            db.execute(change.values(status="committed", finished=_now()))

    def payload(self, entry_id: str) -> bytes:
        """Return the stored release of an entry."""
        with self._transaction() as db:
            query = sa.select(_payloads.c.data).where(_payloads.c.entry == entry_id).order_by(_payloads.c.part)
            return b"".join(db.execute(query).scalars())

    def _facts(self, db: sa.Connection) -> dict[str, Any]:
        return {key: json.loads(value) for key, value in db.execute(sa.select(_dataset))}

    def _read(self, db: sa.Connection) -> list[Entry]:
        return [
            Entry(
                kind=row.kind,
                request=row.request,
                details=json.loads(row.details),
                costs={int(m): Cost.from_json(cost) for m, cost in json.loads(row.costs).items()},
                rows=row.rows,
                id=row.id,
                status=row.status,
                created=row.created,
                finished=row.finished,
            )
            for row in db.execute(sa.select(_entries).order_by(_entries.c.number))
        ]

    def _create_or_recognise(self, db: sa.Connection) -> None:
        if not sa.inspect(db).get_table_names():
            _meta.create_all(db)
        self._recognise(db)

    def _recognise(self, db: sa.Connection) -> None:
        if not set(_meta.tables) <= set(sa.inspect(db).get_table_names()):
            raise LedgerError(f"{self.path} is not a labeldp ledger: name another file.")

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._threads, self._engine.begin() as db:
                yield db
        except sa.exc.DatabaseError as problem:
            raise LedgerError(_explain(self.path, str(problem.orig))) from None


def ledger_beside(data: Path) -> Path:
    """Return the usual place of a table's ledger: beside the data, to which a link leads."""
    real = data.resolve()
    return real.with_name(real.name + ".ledger")


def in_progress(path: Path) -> bool:
    """Whether a process is drawing a release from this ledger right now."""
    with suppress(Timeout, OSError), FileLock(f"{path}.lock", timeout=0):
        return False
    return True


def _explain(path: Path | None, problem: str) -> str:
    if "locked" in problem:
        return f"{path} is locked by another process: try again when it is done."
    if "readonly" in problem or "unable to open" in problem:
        return f"{path} cannot be opened for writing: check the path and its permissions."
    if "full" in problem or "I/O" in problem:
        return f"{path} cannot be written ({problem}): make room, and run it again. Keep it: it says what was spent."
    return f"{path} is not a ledger, or it is damaged ({problem}): restore it from a backup or name another file."


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
