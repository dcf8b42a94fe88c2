"""CSV files that people open in a spreadsheet, which takes some texts for formulas."""

import polars as pl

from labeldp.core.errors import InputError

# What OWASP names as the beginning of a formula; a number with a sign is none.
_FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_TEXT_DTYPES = (pl.String, pl.Categorical, pl.Enum)


def escape_formulas(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Put a quote (') before each text, and each name of a column, that a spreadsheet would take for a formula.

    Returns:
        The frame, and how many texts were changed.

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
    texts = texts.alias("")  # Polars takes a name like ^a$ for a pattern of names
    return texts.str.contains(_FORMULA) & ~texts.str.contains(_NUMBER)


def _quote_formulas(texts: pl.Series) -> pl.Series:
    plain = texts.alias("")
    return plain.zip_with(~_is_formula(plain).fill_null(False), "'" + plain).alias(texts.name)
