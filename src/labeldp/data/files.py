"""CSV and Parquet files, read and written in batches so that no table has to fit in memory."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from labeldp.core.atomic_files import atomic_write, temporary_path
from labeldp.core.errors import InputError
from labeldp.data.arrow_types import polars_schema, to_polars

BatchTransform = Callable[[pa.RecordBatch], pa.RecordBatch]
_BATCH = 1 << 18
_REHEARSAL_ROWS = 8  # rows of each batch that a rehearsal writes
_CSV: dict[str, Any] = {
    "read_options": pa.csv.ReadOptions(block_size=1 << 24),
    "parse_options": pa.csv.ParseOptions(newlines_in_values=True),
}


class TableFile:
    """A CSV or Parquet file. All CSV columns are strings, copied as written (empty ones without quotes)."""

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
        self._types = {field.name: field.type for field in self.schema}

    @property
    def n_rows(self) -> int | None:
        """The number of rows if the metadata state it; None for CSV."""
        return pq.ParquetFile(self.path).metadata.num_rows if self.path.suffix == ".parquet" else None

    def column_type(self, name: str) -> pa.DataType:
        """Return the type of a column; raise InputError if there is none of that name."""
        if name not in self._types:
            known = ", ".join(self.schema.names[:20])
            separators = [mark for mark in ";\t|" if mark in known and self.path.suffix == ".csv"]
            hint = f" Its fields seem to be apart by {separators[0]!r}: write commas." if separators else ""
            raise InputError(f"{self.path} has no column {name!r}: it has {known}.{hint}")
        return self._types[name]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Read the file batch by batch."""
        source = self._attempt(lambda: self._open(columns))
        with source:
            batches = source.iter_batches(_BATCH, columns=columns) if self.path.suffix == ".parquet" else iter(source)
            while (batch := self._attempt(lambda: next(batches, None))) is not None:
                yield batch if columns is None else batch.select(list(columns))

    def _open(self, columns: Sequence[str] | None) -> Any:
        if self.path.suffix == ".parquet":
            return pq.ParquetFile(self.path, pre_buffer=False)
        convert = pa.csv.ConvertOptions(column_types=self.schema, strings_can_be_null=False, include_columns=columns)
        return pa.csv.open_csv(self.path, **_CSV, convert_options=convert)

    def frames(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield public columns as Polars frames; those of a CSV are strings, and an empty string is missing.

        Raises:
            InputError: There is no such column, or Polars cannot read its type.
        """
        self.frame_schema(columns)
        for batch in self.batches(columns):
            frame = self._attempt(partial(to_polars, batch))
            yield frame.with_columns(_empty_as_null()) if self.path.suffix == ".csv" else frame

    def frame_schema(self, columns: Sequence[str]) -> pl.Schema:
        """Return the Polars types of public columns.

        Raises:
            InputError: There is no such column, or Polars cannot read its type.
        """
        for name in columns:
            self.column_type(name)
        return polars_schema(self.schema, columns)

    def rewrite(
        self,
        out: Path,
        transform: BatchTransform,
        label: str,
        metadata: dict[str, str],
        columns: Sequence[str] | None = None,
    ) -> None:
        """Copy the file, with each batch transformed, to `out` atomically.

        The metadata of the source file and of its label column are not copied, because they can contain class counts.

        Args:
            out: The path of the copy.
            transform: The function that is applied to each batch.
            label: The name of the label column.
            metadata: The metadata of a Parquet copy.
            columns: The columns to copy; None for all.
        """
        with atomic_write(out) as unfinished:
            self._write(unfinished, map(transform, self.batches(columns)), label, metadata, columns)

    def rehearse(
        self,
        out: Path,
        transform: BatchTransform,
        label: str,
        metadata: dict[str, str],
        columns: Sequence[str] | None = None,
        *,
        min_rows: int = _REHEARSAL_ROWS,
    ) -> None:
        """Read the whole file and write a few rows of each batch, as `rewrite` would, to a temporary file.

        Args:
            out: The path of the copy, in whose folder the temporary file lies.
            transform: The function that is applied to each batch.
            label: The name of the label column.
            metadata: The metadata of a Parquet copy.
            columns: The columns to copy; None for all.
            min_rows: The number of rows of the first batch to write at least; fewer rows are repeated.

        Privacy:
            `transform` must put public values into the label column, because messages describe what failed.

        Raises:
            InputError: The file cannot be read, or its copy cannot be written.
        """

        def sample_batches() -> Iterator[pa.RecordBatch]:
            for index, batch in enumerate(self.batches(columns)):
                head = batch.slice(0, _REHEARSAL_ROWS)
                if index == 0 and batch.num_rows:
                    # Rows are repeated by concatenation, because Arrow cannot select rows of every type.
                    copies = [head] * -(-min_rows // head.num_rows)
                    head = pa.Table.from_batches(copies).combine_chunks().to_batches()[0]
                yield transform(head)

        try:
            with temporary_path(out) as unfinished:
                self._write(unfinished, sample_batches(), label, metadata, columns)
            return
        except InputError:
            raise
        except (pa.ArrowException, pl.exceptions.PolarsError, OSError, TypeError, ValueError) as problem:
            kind = getattr(problem, "strerror", None) or type(problem).__name__
        raise InputError(f"A copy of {self.path} cannot be written ({kind}): leave out columns of unusual types.")

    def _write(
        self,
        path: Path,
        batches: Iterator[pa.RecordBatch],
        label: str,
        metadata: dict[str, str],
        columns: Sequence[str] | None,
    ) -> None:
        if self.path.suffix == ".csv":
            with path.open("wb") as stream:  # by Polars: Arrow would put every text in quotes
                for index, batch in enumerate(batches):
                    frame = pl.DataFrame(batch).with_columns(_empty_as_null())
                    frame.write_csv(stream, include_header=index == 0)
            return
        fields = [field for field in self.schema if columns is None or field.name in columns]
        # A required label can be missing in the copy if a user has more labels than are released.
        fields = [f.remove_metadata().with_nullable(True) if f.name == label else f for f in fields]
        schema = pa.schema(fields, metadata)
        # Ids and measurements rarely repeat: a dictionary of them takes half of the writing time and saves no space.
        wide = (pa.types.is_floating, pa.types.is_int64, pa.types.is_uint64)
        repeating = [f.name for f in schema if not any(is_wide(f.type) for is_wide in wide)]
        with pq.ParquetWriter(path, schema, compression=self._codec(), use_dictionary=repeating) as writer:
            for batch in batches:
                writer.write_batch(pa.record_batch(batch.columns, schema=schema))

    def _codec(self) -> str:
        """Return the compression codec of the first column, by its name in Arrow's writer."""
        metadata = pq.ParquetFile(self.path).metadata
        codec: str = metadata.row_group(0).column(0).compression if metadata.num_row_groups else "ZSTD"
        return {"UNCOMPRESSED": "NONE"}.get(codec, codec)

    def _read_schema(self) -> pa.Schema:
        if self.path.suffix == ".parquet":
            return pq.ParquetFile(self.path).schema_arrow
        with pa.csv.open_csv(self.path, **_CSV) as reader:
            return pa.schema([(name, pa.string()) for name in reader.schema.names])

    def _attempt(self, read: Callable[[], Any]) -> Any:
        """Read; raise InputError if that fails, outside the handler, because Arrow's message can quote a label."""
        try:
            return read()
        except (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
            kind = getattr(problem, "strerror", None) or type(problem).__name__
        remedy = "a UTF-8 text with a header and equally many fields in each line"
        expected = remedy if self.path.suffix == ".csv" else "a whole Parquet file"
        raise InputError(f"{self.path} cannot be read ({kind}): it must be {expected}.")


def _empty_as_null() -> pl.Expr:
    """Return an expression that replaces empty strings by null."""
    return pl.when(pl.all() != "").then(pl.all())
