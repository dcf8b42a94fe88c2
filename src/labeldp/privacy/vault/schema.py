"""The tables of a ledger file, and how events are written to them and read.

Later work has room without another format: the JSON of an event takes further facts (the attempt, the party), and
payloads are kept by block of rows.
"""

from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from labeldp.core.errors import LedgerError
from labeldp.privacy.vault.chain import INITIAL_DIGEST, Event

FORMAT_VERSION = 3

metadata = sa.MetaData()
head = sa.Table(
    "labeldp_head",
    metadata,
    sa.Column("format", sa.Integer, primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)
events = sa.Table(
    "labeldp_events",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    *(sa.Column(name, sa.Text, nullable=False) for name in Event.__slots__[1:]),
)
row_sets = sa.Table(
    "labeldp_row_sets",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("packed", sa.LargeBinary, nullable=False),
)
payloads = sa.Table(
    "labeldp_payloads",
    metadata,
    sa.Column("entry", sa.Text, primary_key=True),
    sa.Column("block", sa.Integer, primary_key=True),
    sa.Column("part", sa.Integer, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)


def create(db: sa.Connection) -> None:
    """Make the tables of an empty ledger."""
    metadata.create_all(db)
    db.execute(head.insert().values(format=FORMAT_VERSION, count=0, digest=INITIAL_DIGEST))


def table_names(db: sa.Connection) -> set[str]:
    """Return the names of all tables of a database."""
    return set(sa.inspect(db).get_table_names())


def check_format(db: sa.Connection, path: Path | None) -> None:
    """Check that a database is a ledger of this format.

    Raises:
        LedgerError: It is something else, or of another version.
    """
    if not set(metadata.tables) <= table_names(db):
        raise LedgerError(f"{path} is not a labeldp ledger: name another file.")
    if db.execute(sa.select(head.c.format)).scalars().all() != [FORMAT_VERSION]:
        raise LedgerError(f"{path} was written by another version of labeldp: use that version.")


def read_head(db: sa.Connection) -> tuple[int, str]:
    """Return the number of events and the last digest, as they are stored beside the events."""
    count, digest = db.execute(sa.select(head.c.count, head.c.digest)).one()
    return count, digest


def events_after(db: sa.Connection, number: int) -> Iterator[Event]:
    """Read the events after a number, in order, as they are stored.

    Raises:
        TypeError: A stored value is of another type than was written.
    """
    query = sa.select(events).where(events.c.number > number).order_by(events.c.number)
    for values in db.execute(query).tuples():
        if type(values[0]) is not int or any(type(value) is not str for value in values[1:]):
            raise TypeError("an event holds a value of another type")
        yield Event(*values)


def append(db: sa.Connection, event: Event) -> None:
    """Write an event and move the head to it."""
    db.execute(events.insert().values({name: getattr(event, name) for name in Event.__slots__}))
    db.execute(head.update().values(count=event.number, digest=event.digest))
