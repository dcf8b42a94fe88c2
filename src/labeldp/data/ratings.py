"""Loader of rating files in the formats of MovieLens. Nothing is downloaded."""

from pathlib import Path

import polars as pl

from labeldp.core.errors import InputError

COLUMNS = ("user", "item", "rating")


def read_ratings(path: str | Path) -> pl.DataFrame:
    """Read `u.data` (tabs), `ratings.dat` (two colons) or `ratings.csv` (a header) as columns user, item and rating.

    The suffix of the name determines the format. Times are dropped, and whole ratings become integers. Ratings are
    secret labels, so messages about a damaged file contain none.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    readers = {".data": _read_tabs, ".dat": _read_colons, ".csv": _read_commas}
    if path.suffix not in readers:
        raise InputError(f"{path} is not named as MovieLens names ratings: u.data, ratings.dat or ratings.csv.")
    try:
        frame = readers[path.suffix](path)
        frame = frame.select(pl.nth(0).cast(pl.Int64), pl.nth(1).cast(pl.Int64), pl.nth(2).cast(pl.Float64))
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError):
        frame = pl.DataFrame()
    if frame.width != 3 or not frame.height or any(frame.null_count().row(0)):
        raise InputError(f"{path} is damaged or holds no ratings: each line is a user, an item, a rating and a time.")
    frame.columns = COLUMNS
    are_whole = bool((frame["rating"] == frame["rating"].round()).all())
    return frame.with_columns(pl.col("rating").cast(pl.Int64)) if are_whole else frame


def _read_tabs(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, separator="\t", has_header=False)


def _read_commas(path: Path) -> pl.DataFrame:
    return pl.read_csv(path)


def _read_colons(path: Path) -> pl.DataFrame:
    lines = pl.Series(path.read_text(encoding="latin-1").splitlines(), dtype=pl.String)
    return lines.str.split("::").list.to_struct(fields=["user", "item", "rating", "time"]).struct.unnest()
