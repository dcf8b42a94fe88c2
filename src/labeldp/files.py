"""Tables on disk, CSV or Parquet, read and written in batches so that no table has to fit in memory."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from labeldp.errors import InputError
from labeldp.writing import written_whole

_BATCH = 1 << 18
_CSV_BLOCK = 1 << 24


class TableFile:
    """A CSV or Parquet file. All CSV columns are text, kept as written (an empty one without quotes)."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            folder = self.path.is_dir()
            raise InputError(f"{self.path} is a folder: name a file." if folder else f"There is no file {self.path}.")
        if self.path.suffix not in (".csv", ".parquet"):
            raise InputError(f"{self.path} must be a .csv or a .parquet file.")
        if not self.path.stat().st_size:
            raise InputError(f"{self.path} is empty: give a table with a header and rows.")
        self.schema: pa.Schema = self._attempt(self._read_schema)
        if len(set(self.schema.names)) < len(self.schema.names):
            raise InputError(f"{self.path} has two columns of one name: rename one.")

    @property
    def rows(self) -> int | None:
        """The number of rows, where the file says so without being read."""
        return pq.ParquetFile(self.path).metadata.num_rows if self.path.suffix == ".parquet" else None

    def column_type(self, name: str) -> pa.DataType:
        """Return the type of a column, or say that there is none of that name."""
        if name not in self.schema.names:
            known = ", ".join(self.schema.names[:20])
            others = [mark for mark in ";\t|" if mark in known and self.path.suffix == ".csv"]
            apart = f" Its fields seem to be apart by {others[0]!r}: write commas." if others else ""
            raise InputError(f"{self.path} has no column {name!r}: it has {known}.{apart}")
        return self.schema.field(name).type

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the file batch by batch."""
        source = self._attempt(lambda: self._open(columns))
        with source:
            batches = source.iter_batches(_BATCH, columns=columns) if self.path.suffix == ".parquet" else iter(source)
            while (batch := self._attempt(lambda: next(batches, None))) is not None:
                yield batch

    def _open(self, columns: Sequence[str] | None) -> Any:
        if self.path.suffix == ".parquet":
            return pq.ParquetFile(self.path, pre_buffer=False)
        convert = pa.csv.ConvertOptions(column_types=self.schema, strings_can_be_null=False, include_columns=columns)
        return pa.csv.open_csv(self.path, self._csv_reading(), convert_options=convert)

    def rewrite(
        self,
        out: Path,
        change: Callable[[pa.RecordBatch], pa.RecordBatch],
        secret: str,
        facts: dict[str, str],
        columns: Sequence[str] | None = None,
    ) -> None:
        """Copy the file, or some columns, to `out` with each batch changed: whole or not at all. Parquet keeps `facts`.

        What the source file says about itself is left behind, and what it says about the `secret` column: such
        metadata can count classes.
        """
        with written_whole(out) as partial:
            if self.path.suffix == ".csv":
                with partial.open("wb") as stream:  # by Polars: Arrow would put every text in quotes
                    for number, batch in enumerate(self.batches(columns)):
                        frame = pl.DataFrame(change(batch)).with_columns(pl.when(pl.all() != "").then(pl.all()))
                        frame.write_csv(stream, include_header=number == 0)
                return
            metadata = pq.ParquetFile(self.path).metadata
            codec = metadata.row_group(0).column(0).compression if metadata.num_row_groups else "ZSTD"
            fields = [field for field in self.schema if columns is None or field.name in columns]
            schema = pa.schema([f.remove_metadata() if f.name == secret else f for f in fields], facts)
            # Ids and measurements hardly repeat: a dictionary of them costs half of the writing and gains nothing.
            wide = (pa.types.is_floating, pa.types.is_int64, pa.types.is_uint64)
            repeating = [f.name for f in schema if not any(is_wide(f.type) for is_wide in wide)]
            with pq.ParquetWriter(partial, schema, compression=codec, use_dictionary=repeating) as writer:
                for batch in self.batches(columns):
                    writer.write_batch(pa.record_batch(change(batch).columns, schema=schema))

    def _read_schema(self) -> pa.Schema:
        if self.path.suffix == ".parquet":
            return pq.ParquetFile(self.path).schema_arrow
        with pa.csv.open_csv(self.path, self._csv_reading()) as reader:
            return pa.schema([(name, pa.string()) for name in reader.schema.names])

    def _csv_reading(self) -> Any:
        return pa.csv.ReadOptions(block_size=_CSV_BLOCK)

    def _attempt(self, read: Callable[[], Any]) -> Any:
        """Read, or say that the file cannot be read: outside the handler, because Arrow's message can quote a label."""
        try:
            return read()
        except (pa.ArrowException, OSError) as problem:
            kind = getattr(problem, "strerror", None) or type(problem).__name__
        remedy = "a UTF-8 text with a header and equally many fields in each line"
        wanted = remedy if self.path.suffix == ".csv" else "a whole Parquet file"
        raise InputError(f"{self.path} cannot be read ({kind}): it must be {wanted}.")
