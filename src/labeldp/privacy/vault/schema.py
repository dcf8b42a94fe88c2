"""The tables of a ledger file, the check of its format, and reading and writing of events.

The format leaves room for extensions: the JSON of an event can hold further facts (the attempt, the party), and
payloads are stored by block of rows.
"""

from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from labeldp.core.errors import LedgerError
from labeldp.privacy.vault.chain import INITIAL_DIGEST, LedgerEvent

FORMAT_VERSION = 4
_FORMAT_2_TABLES = {"labeldp_dataset", "labeldp_entries", "labeldp_payloads"}

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
    *(sa.Column(name, sa.Text, nullable=False) for name in LedgerEvent.__slots__[1:]),
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
    """Create the tables of an empty ledger."""
    metadata.create_all(db)
    db.execute(head.insert().values(format=FORMAT_VERSION, count=0, digest=INITIAL_DIGEST))


def check_format(db: sa.Connection, path: Path | None) -> None:
    """Check that a database is a ledger of this format.

    The digest of a request depends on names of classes and fields. In a ledger written with other names, a request
    would not find its stored release, and a repeated request would draw new noise. Older formats are therefore refused.

    Args:
        db: The database. It is only read.
        path: The ledger's path, for the message.

    Raises:
        LedgerError: The database is no ledger, or has another format.
        TypeError: The ledger states no format.
    """
    table_names = set(sa.inspect(db).get_table_names())
    if table_names >= _FORMAT_2_TABLES:
        found = 2
    elif table_names >= set(metadata.tables):
        formats = db.execute(sa.select(head.c.format)).scalars().all()
        if formats == [FORMAT_VERSION]:
            return
        if len(formats) != 1 or type(formats[0]) is not int:
            raise TypeError("the format is no number")
        found = formats[0]
    else:
        raise LedgerError(f"{path} is not a labeldp ledger: name another file.")
    raise LedgerError(
        f"{path} has ledger format {found}, and this version of labeldp writes format {FORMAT_VERSION}, in which "
        "requests have other names: use the version that wrote it for these labels. A repeated request would "
        "otherwise draw new noise."
    )


def read_head(db: sa.Connection) -> tuple[int, str]:
    """Return the number of events and the last digest, as they are stored beside the events."""
    n_events, digest = db.execute(sa.select(head.c.count, head.c.digest)).one()
    return n_events, digest


def events_after(db: sa.Connection, number: int) -> Iterator[LedgerEvent]:
    """Read the events after a number, in order, as they are stored.

    Raises:
        TypeError: A stored value does not have the type that was written.
    """
    query = sa.select(events).where(events.c.number > number).order_by(events.c.number)
    for values in db.execute(query).tuples():
        if type(values[0]) is not int or any(type(value) is not str for value in values[1:]):
            raise TypeError("an event holds a value of another type")
        yield LedgerEvent(*values)


def append(db: sa.Connection, event: LedgerEvent) -> None:
    """Write an event and move the head to it."""
    db.execute(events.insert().values({name: getattr(event, name) for name in LedgerEvent.__slots__}))
    db.execute(head.update().values(count=event.number, digest=event.digest))
