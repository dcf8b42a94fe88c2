"""Features of a table file, which never include the label, and warnings about unexpected columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from labeldp.core.errors import InputError
from labeldp.core.lazy import require_torch
from labeldp.data.base import Features
from labeldp.data.feature_reader import FeatureReader
from labeldp.data.files import TableFile
from labeldp.data.image_columns import image_column, read_images
from labeldp.data.tables import Table
from labeldp.privacy.vault.labeled_table import MISSING_NUMBERS, SecretTable

if TYPE_CHECKING:
    from labeldp.data.images import Images


def read_features(table: SecretTable, kind: str, n_rows: int, flip: bool = False) -> tuple[FeatureReader, Features]:
    """Read the features of a table of `n_rows` rows, in batches if the file allows it. The label is never read."""
    columns = table.feature_columns
    if not columns:
        raise InputError(f"{table.file.path} has no features: add a column that is neither the label nor the row ids.")
    if kind == "table" and table.file.path.suffix == ".parquet":
        features: Features = (read := Table.from_parquet(table.file.path, columns))
        reader = FeatureReader("table", tuple(columns), read.to_json())
    else:
        reader, features = FeatureReader.fit(read_columns(table.file, columns), kind, flip)  # type: ignore[arg-type]
    if len(features) != n_rows:
        raise InputError(f"{table.file.path} changed while it was read: try again.")
    return reader, features


def read_image_column(file: TableFile, flip: bool = False, excluded_columns: Sequence[str] = ()) -> Images:
    """Read the one column of images that is not excluded, and no other column."""
    require_torch("Training on images")
    from labeldp.data.images import Images

    column = find_image_column(file, [name for name in file.schema.names if name not in excluded_columns])
    return Images(read_images(read_columns(file, [column]).to_series()), flip)


def image_column_of(table: SecretTable) -> str:
    """Return the name of the image column of a table."""
    return find_image_column(table.file, table.feature_columns)


def find_image_column(file: TableFile, columns: Sequence[str]) -> str:
    """Return the name of the one image column; raise an error if there is not exactly one."""
    if file.path.suffix == ".csv":
        raise InputError(f"Images are bytes, which {file.path} cannot hold: write the table as .parquet.")
    return image_column(file.frame_schema(columns))


def read_columns(file: TableFile, columns: list[str], text_columns: Sequence[str] = ()) -> pl.DataFrame:
    """Read feature columns. Numbers in a CSV file become numbers.

    A word may mark missing numbers, such as the NA of R. Columns in `text_columns` are not converted, because they were
    texts in the training.
    """
    missing = [name for name in columns if name not in file.schema.names]
    if missing:
        raise InputError(f"{file.path} lacks the column {missing[0]!r}, which the model was trained on.")
    inferred = [] if file.path.suffix == ".parquet" else [name for name in columns if name not in text_columns]
    dtypes = _infer_dtypes(file, inferred) if inferred else {}
    empty = pl.DataFrame(schema=file.frame_schema(columns))
    return pl.concat([_cast_columns(frame, dtypes) for frame in (empty, *file.frames(columns))])


_NUMERIC_DTYPES = (pl.Int64(), pl.Float64())


def _infer_dtypes(file: TableFile, columns: list[str]) -> dict[str, pl.DataType]:
    """Return the type of each column of a CSV file whose texts are all numbers or all booleans.

    A column in which a word marks missing numbers is read as decimals.
    """
    possible = {name: [*_NUMERIC_DTYPES, pl.Boolean()] for name in columns}
    empty = set(columns)
    for frame in file.frames(columns):
        for column in frame:
            is_absent = column.alias("").is_in(MISSING_NUMBERS)
            present = column.filter(~is_absent)  # null texts are neither
            dtypes = [pl.Float64()] if is_absent.any() else possible[column.name]
            dtypes = [dtype for dtype in dtypes if dtype in possible[column.name]]
            possible[column.name] = [dtype for dtype in dtypes if not _parse_texts(present, dtype).null_count()]
            empty -= {column.name} if len(present) else set()
    return {name: dtypes[0] for name, dtypes in possible.items() if dtypes and name not in empty}


def _cast_columns(frame: pl.DataFrame, dtypes: dict[str, pl.DataType]) -> pl.DataFrame:
    return frame.with_columns(_parse_texts(frame[name], dtype).alias(name) for name, dtype in dtypes.items())


def _parse_texts(texts: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Convert texts to another type, without their name; values that cannot be converted become null."""
    texts = texts.alias("")  # Polars interprets a name such as ^a$ as a pattern
    if dtype == pl.Boolean:
        words = texts.str.to_lowercase()
        return words.replace_strict(["true", "false"], [True, False], default=None, return_dtype=dtype)
    return texts.replace(MISSING_NUMBERS, None).cast(dtype, strict=False)


def data_warnings(table: SecretTable, features: Features) -> list[str]:
    """Return warnings about columns with unexpected contents. Features are public, so the messages may name them."""
    file, messages = table.file, list[str]()
    if table.id_column is not None and (n_ids := read_columns(file, [table.id_column]).to_series().n_unique()) < len(
        features
    ):
        messages.append(
            f"Column {table.id_column!r} has {n_ids:,} different ids for {len(features):,} rows. "
            "If they are people, declare it as the user column, which protects all rows of a person."
        )
    if features.kind == "images" and (
        unused := [name for name in table.feature_columns if name != image_column_of(table)]
    ):
        messages.append(f"The model uses images only: {', '.join(map(repr, unused))} had no effect.")
    if not isinstance(features, Table):
        return messages
    texts = [column.name for column in features.encoder.categorical]
    unnamed_columns = {column.name for column in features.encoder.categorical if not column.values}
    for column in read_columns(file, texts) if texts else []:
        present = column.drop_nulls().cast(pl.String)
        present = present.filter(present != "")
        n_texts = int(present.cast(pl.Float64, strict=False).null_count())
        if present.is_empty():
            messages.append(f"Column {column.name!r} is empty.")
        elif file.path.suffix == ".csv" and 0 < n_texts < len(present) / 2:
            exceptions = f"{n_texts:,} row{'s' * (n_texts > 1)}"
            messages.append(
                f"Column {column.name!r} holds numbers except in {exceptions}, so it was read as categories."
            )
        elif file.path.suffix == ".csv" and present.str.contains(r"^-?\d+,\d+$").mean() > 0.5:  # type: ignore[operator]
            messages.append(
                f"Column {column.name!r} has decimal commas, so it was read as categories: write decimal points."
            )
        elif column.name in unnamed_columns:
            messages.append(
                f"Column {column.name!r} has a different text in nearly every row: declare it as the id column if it "
                "identifies rows."
            )
    return messages
