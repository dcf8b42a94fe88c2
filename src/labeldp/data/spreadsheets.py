"""Protection of CSV files against strings that a spreadsheet would evaluate as formulas."""

import polars as pl

from labeldp.core.errors import InputError

# First characters of formulas, by OWASP's page on CSV injection. A number with a sign is no formula.
_FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_TEXT_DTYPES = (pl.String, pl.Categorical, pl.Enum)


def escape_formulas(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Put a quote (') before each string and column name that a spreadsheet would evaluate as a formula.

    Returns:
        The frame, and the number of changed strings.

    Raises:
        InputError: A column cannot be written to a CSV file.
    """
    for name, dtype in frame.schema.items():
        if dtype.is_nested() or dtype == pl.Binary:
            raise InputError(f"Column {name!r} holds {dtype}, which a CSV cannot hold: write a .parquet file.")
    header = pl.Series(frame.columns, dtype=pl.String)
    texts = frame.select(pl.col(dtype).cast(pl.String) for dtype in _TEXT_DTYPES)
    n_changed = sum(int(_is_formula(column).sum()) for column in (header, *texts))
    frame = frame.with_columns(_quote_formulas(column) for column in texts)
    return frame.rename(dict(zip(header, _quote_formulas(header), strict=True))), n_changed


def _is_formula(texts: pl.Series) -> pl.Series:
    texts = texts.alias("")  # Polars interprets a name like ^a$ as a pattern of names
    return texts.str.contains(_FORMULA) & ~texts.str.contains(_NUMBER)


def _quote_formulas(texts: pl.Series) -> pl.Series:
    plain = texts.alias("")
    return plain.zip_with(~_is_formula(plain).fill_null(False), "'" + plain).alias(texts.name)
