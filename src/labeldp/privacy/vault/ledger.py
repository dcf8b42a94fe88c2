"""The ledger: the privacy costs of one data set, stored in one SQLite file beside the data.

An entry is reserved in a separate transaction before any noise is drawn, and committed together with the release. A
reserved entry counts as spent.

If a process is killed or interrupted between the two, nobody has seen its noise, because `Vault` returns a release only
after the commit. The interruption does not depend on labels. The same request therefore draws again under the same
reservation. If a draw raises an exception, the cause is unknown and might depend on labels. The entry is then marked as
failed, and the same request is charged again.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from labeldp.accounting.costs import is_row_set, row_set_name
from labeldp.core.errors import InputError, LedgerError
from labeldp.privacy.vault import schema
from labeldp.privacy.vault.chain import Chain, LedgerEvent, encode_label, write_costs
from labeldp.privacy.vault.entries import Entry, now
from labeldp.privacy.vault.thread_lock import ThreadLock

# The number of bytes of a release in one database row. A row of SQLite holds less than 1 GB.
_PART_BYTES = 1 << 26
_LOCK_TIMEOUT_SECONDS = 600

ChainCheck = Callable[[Chain], None]


class Ledger:
    """An append-only ledger in a file, or in memory without `path`."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self._file = None if self.path is None else _real_path(self.path)
        self._pid = os.getpid()
        self._thread_lock = ThreadLock()
        # The process that holds the file's lock through this object.
        self._lock_holder_pid: int | None = None
        self._chain = Chain()
        self._is_recognized = False
        self._pending_events: list[LedgerEvent] = []  # written in the transaction that is under way
        self._row_sets: dict[str, bytes] = {}
        self._payloads: dict[str, bytes] = {}  # of a ledger in memory
        if self._file is not None:
            self._engine = _create_engine(self._file)

    def snapshot(self) -> Chain:
        """Return the verified chain as it is now. Only events that are new since the last call are read.

        Raises:
            LedgerError: There is no ledger, or it is damaged.
        """
        with self._transaction() as db:
            chain = self._refresh(db)
        if not chain.facts:
            raise self._damage_error("it is bound to no data")
        return chain

    def facts(self) -> dict[str, Any]:
        """Return the facts of the data set that the ledger is bound to, and its budget."""
        return dict(self.snapshot().facts)

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        return self.snapshot().entries()

    def open(self, facts: Mapping[str, Any], find_mismatch: Callable[[Chain], str | None]) -> Chain:
        """Bind a new ledger to a data set, or check that an old one belongs to it.

        A ledger without entries, which a refused request leaves, is bound to the new facts.

        Args:
            facts: What to bind a new ledger to. A different `mark` alone does not bind it anew.
            find_mismatch: Returns why a ledger with entries does not belong to the data; None if it does.

        Returns:
            The chain, which is bound.

        Raises:
            LedgerError: The ledger belongs to other data, or is damaged.
        """
        with self.exclusive_lock():
            with self._transaction(write=True, create=True) as db:
                chain = self._refresh(db)
                if chain.has_entries:
                    mismatch = find_mismatch(chain)
                    if mismatch:
                        raise LedgerError(f"{self.path or 'This ledger'} {mismatch}")
                elif chain.facts | {"mark": None} != dict(facts) | {"mark": None}:
                    self._append(db, chain.next_event("bind", facts, now()))
            return self._chain

    def reserve(self, entry: Entry, packed_rows: bytes | None, check: ChainCheck) -> None:
        """Write an entry as reserved if `check` accepts the chain before it: one transaction.

        Args:
            entry: A release, a plan or a step of one. Its `row_set` is computed here.
            packed_rows: The released rows as `pack_rows` writes them; None for all rows.
            check: Raises an exception if the budget does not cover the entry.

        Raises:
            LabelDPError: The exception of `check`. Nothing is written.
        """
        row_set = row_set_name(packed_rows)
        with self._transaction(write=True) as db:
            chain = self._refresh(db)
            check(chain)
            if packed_rows is not None:
                self._store_row_set(db, row_set, packed_rows)
            costs = write_costs(entry.costs)
            text_fields = {"entry": entry.id, "request": entry.request, "label": encode_label(entry.label)}
            self._append(
                db,
                chain.next_event(entry.kind, entry.details, entry.created, **text_fields, costs=costs, row_set=row_set),
            )

    def commit(self, entry_id: str, payload: bytes = b"") -> None:
        """Store the release of a reserved entry and mark the entry as committed: one transaction.

        Args:
            entry_id: The id of the entry.
            payload: The release as `to_bytes` writes it; empty for a plan.
        """
        with self._transaction(write=True) as db:
            chain = self._refresh(db)
            if db is None:
                self._payloads[entry_id] = payload
            else:
                for part, start in enumerate(range(0, len(payload), _PART_BYTES)):
                    data = payload[start : start + _PART_BYTES]
                    db.execute(schema.payloads.insert().values(entry=entry_id, block=0, part=part, data=data))
            details = {"sha256": hashlib.sha256(payload).hexdigest(), "bytes": len(payload)}
            self._append(db, chain.next_event("commit", details, now(), entry=entry_id))

    def fail(self, entry_id: str) -> None:
        """Record that the draw of a reserved entry raised an exception: one transaction. The entry stays charged."""
        with self._transaction(write=True) as db:
            self._append(db, self._refresh(db).next_event("fail", {}, now(), entry=entry_id))

    def change_budget(self, details: Mapping[str, Any]) -> None:
        """Record a new limit: one transaction.

        Args:
            details: The filter before ("from") and after ("to").
        """
        with self._transaction(write=True) as db:
            chain = self._refresh(db)
            entry = Entry("budget", "", {"mechanism": "new budget", **details})
            self._append(db, chain.next_event("budget", entry.details, entry.created, entry=entry.id))

    def payload(self, entry_id: str) -> bytes:
        """Return the stored release of a committed entry.

        Raises:
            LedgerError: The stored bytes are not those that were committed.
        """
        if self._file is None:
            return self._payloads[entry_id]
        table = schema.payloads
        query = sa.select(table.c.data).where(table.c.entry == entry_id).order_by(table.c.block, table.c.part)
        with self._transaction() as db, self._report_damage():
            data = b"".join(_require_bytes(part) for part in db.execute(query).scalars())
            if hashlib.sha256(data).hexdigest() != self._chain.payload_digest(entry_id):
                raise self._damage_error("a stored release is not what was drawn")
        return data

    def packed_rows(self, row_set: str) -> bytes | None:
        """Return a row set of an entry by its digest, as `pack_rows` wrote it; None for all rows."""
        return self._row_sets[row_set] if row_set else None

    @contextmanager
    def exclusive_lock(self) -> Iterator[None]:
        """Hold the lock of the ledger against all other processes and threads.

        The system releases the lock if this process dies. The lock is reentrant. All names of a file
        (symbolic links, relative paths) share one lock.

        Raises:
            LedgerError: The ledger cannot be locked, or has several hard links.
        """
        with self._thread_lock.hold():
            if self._file is None:
                if os.getpid() != self._pid:
                    raise LedgerError("A ledger in memory cannot follow a fork: give the vault a ledger file.")
                yield
                return
            if self._lock_holder_pid == os.getpid():
                yield
                return
            self._check_path(self._file)
            lock = FileLock(_lock_path(self._file), timeout=_LOCK_TIMEOUT_SECONDS)
            try:  # begins before the lock is acquired, so that an interruption always releases it
                self._acquire_lock(lock)
                self._lock_holder_pid = os.getpid()
                yield
            finally:
                self._lock_holder_pid = None
                lock.release()

    def _check_path(self, file: Path) -> None:
        """Check the path and the format before a lock file is created beside it."""
        if not file.parent.is_dir():
            raise InputError(f"There is no folder {Path(self.path or file).parent} for the ledger.")
        if file.is_dir():
            raise LedgerError(f"{self.path} is a folder, not a ledger.")
        if file.is_file() and not self._is_recognized:
            self._check_integrity(file)
            with self._connection(write=False) as db, self._report_damage():
                schema.check_format(db, self.path)

    def _acquire_lock(self, lock: Any) -> None:
        try:
            lock.acquire()
        except Timeout:
            raise LedgerError(f"{self.path} has been in use for {_LOCK_TIMEOUT_SECONDS} s: try again later.") from None
        except OSError as error:
            raise LedgerError(
                f"{self.path} cannot be locked ({error.strerror}): name a ledger in a folder that can be written to.",
                parameter="ledger",
            ) from None

    def _refresh(self, db: sa.Connection | None) -> Chain:
        """Read and verify the events that other processes have appended since the last call."""
        if db is None:
            return self._chain
        with self._report_damage():
            if not self._is_recognized:
                schema.check_format(db, self.path)
                self._is_recognized = True
            head, n_known = schema.read_head(db), self._chain.n_events
            if head != (self._chain.n_events, self._chain.digest):
                for event in schema.events_after(db, n_known):
                    if event.row_set:
                        self._load_row_set(db, event.row_set)
                    self._chain.extend(event)
                if head != (self._chain.n_events, self._chain.digest):
                    raise self._damage_error("the last events are missing or were changed")
        return self._chain

    def _load_row_set(self, db: sa.Connection, row_set: str) -> None:
        if row_set in self._row_sets:
            return
        query = sa.select(schema.row_sets.c.packed).where(schema.row_sets.c.digest == row_set)
        packed = _require_bytes(db.execute(query).scalar_one())
        if row_set_name(packed) != row_set or not is_row_set(packed, self._chain.facts["identity"]["n_rows"]):
            raise self._damage_error("a row set is not what was reserved")
        self._row_sets[row_set] = packed

    def _store_row_set(self, db: sa.Connection | None, row_set: str, packed_rows: bytes) -> None:
        if db is not None:
            db.execute(
                sqlite_insert(schema.row_sets).values(digest=row_set, packed=packed_rows).on_conflict_do_nothing()
            )
        self._row_sets[row_set] = packed_rows

    def _append(self, db: sa.Connection | None, event: LedgerEvent) -> None:
        """Write the next event. The chain in memory is extended after the transaction has succeeded."""
        if db is None:
            self._chain.extend(event)
        else:
            schema.append(db, event)
            self._pending_events.append(event)

    @contextmanager
    def _transaction(self, write: bool = False, create: bool = False) -> Iterator[Any]:
        """Provide a connection within a transaction; None for a ledger in memory."""
        with self._thread_lock.hold():
            if self._file is None:
                yield None
                return
            if not self._file.is_file():
                if not create:
                    raise LedgerError(f"There is no ledger {self.path}: restore it from a backup.")
                self._create(self._file)
            if os.getpid() != self._pid:  # a thread of the parent may have changed the chain at the fork
                self._pid, self._chain, self._row_sets = os.getpid(), Chain(), {}
            self._check_integrity(self._file)
            self._pending_events = []
            with self._connection(write) as db:
                yield db
            for event in self._pending_events:
                self._chain.extend(event)

    def _create(self, file: Path) -> None:
        """Create an empty ledger by one rename. An empty file is therefore a damaged ledger, and never a new one."""
        # The lock is held, so an existing file was left by a killed process.
        new_file = file.with_name(f".{file.name}.new")
        new_file.unlink(missing_ok=True)
        try:
            with _create_engine(new_file).begin() as db:
                schema.create(db)
            os.replace(new_file, file)
        except sa.exc.DBAPIError as error:
            raise LedgerError(_explain_failure(self.path, str(error.orig))) from None
        finally:
            new_file.unlink(missing_ok=True)

    @contextmanager
    def _connection(self, write: bool) -> Iterator[sa.Connection]:
        try:
            with self._engine.connect() as db:
                db.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield db
                    db.exec_driver_sql("COMMIT")
                except BaseException:
                    with suppress(sa.exc.DBAPIError):
                        db.exec_driver_sql("ROLLBACK")
                    raise
        except sa.exc.DBAPIError as error:
            raise LedgerError(_explain_failure(self.path, str(error.orig))) from None

    def _check_integrity(self, file: Path) -> None:
        """Refuse a file with several hard links, and an empty file."""
        status = file.stat()
        if status.st_nlink > 1:
            raise LedgerError(
                f"{self.path} has several names (hard links), and SQLite can lose what is written under one of them: "
                "copy it to a new file and remove the other names."
            )
        if not status.st_size:
            raise LedgerError(
                f"{self.path} is empty, as if it had been cut off: restore it from a backup, or remove it if nothing "
                "was ever spent."
            )

    @contextmanager
    def _report_damage(self) -> Iterator[None]:
        """Report any exception while stored values are read as damage of the ledger."""
        try:
            yield
        except (LedgerError, OSError, sa.exc.DBAPIError):
            raise
        except Exception as error:
            raise self._damage_error(type(error).__name__) from None

    def _damage_error(self, reason: str) -> LedgerError:
        return LedgerError(_explain_failure(self.path, reason))


def default_ledger_path(data: Path) -> Path:
    """Return the path of the ledger beside a table. A link is resolved to the table first."""
    real = Path(os.path.realpath(data))  # `resolve` raises an exception for links in a circle
    return real.with_name(real.name + ".ledger")


def is_in_use(path: Path) -> bool:
    """Whether a process is drawing a release from this ledger right now."""
    file = _real_path(path)
    if not file.is_file():
        return False
    with suppress(Timeout, OSError), FileLock(_lock_path(file), timeout=0):
        return False
    return True


def _create_engine(file: Path) -> sa.Engine:
    """Return a database engine without pooled connections: each transaction opens the file."""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(str(file), timeout=60, isolation_level=None, check_same_thread=False)

    return sa.create_engine("sqlite://", creator=connect, poolclass=sa.NullPool)


def _real_path(path: Path) -> Path:
    """Return the file that a path leads to.

    Raises:
        LedgerError: No file can have this name.
    """
    try:
        real = Path(os.path.realpath(path))
        real.exists()
    except (OSError, ValueError):
        raise LedgerError("No file can have the name of this ledger: give a shorter or simpler one.") from None
    return real


def _lock_path(file: Path) -> str:
    return f"{file}.lock"


def _require_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("not bytes")
    return value


def _explain_failure(path: Path | None, reason: str) -> str:
    if "locked" in reason:
        return f"{path} is locked by another process: try again when it is done."
    if "readonly" in reason or "unable to open" in reason:
        return f"{path} cannot be opened for writing: check the path and its permissions."
    if "full" in reason or "I/O" in reason:
        return f"{path} cannot be written ({reason}): make room, and run it again. Keep it: it records what was spent."
    excerpt = shorten("".join(c if c.isprintable() else " " for c in reason), 80)  # SQLite can quote what it has read
    return f"{path} is not a ledger, or it is damaged ({excerpt}): restore it from a backup or name another file."
