"""Pictures kept as files in a column of a table: PNG, JPEG and the like, as public data sets are often handed out."""

import io

import numpy as np
import polars as pl
from numpy.typing import NDArray

from labeldp.core.errors import InputError


def picture_column(schema: pl.Schema) -> str:
    """Return the column that holds pictures: bytes, or a record with `bytes` in it."""
    found = [name for name, kind in schema.items() if kind == pl.Binary or _is_record(kind)]
    if len(found) != 1:
        has = f"{', '.join(map(repr, found))}: leave out all but one (--leave-out)" if found else "none"
        raise InputError(f"Images need one column of picture files (PNG or JPEG as bytes), and the table has {has}.")
    return found[0]


def read_pictures(column: pl.Series) -> NDArray[np.uint8]:
    """Return pixels (rows, channels, height, width): gray if every picture is, else in colour."""
    from PIL import Image

    files = column.struct.field("bytes") if _is_record(column.dtype) else column
    if files.null_count():
        raise InputError(f"A picture is missing, first in row {int(files.is_null().arg_max() or 0)}: drop the row.")
    if not len(files):
        raise InputError("There are no pictures: the table has no rows.")
    pictures = []
    for row, file in enumerate(files):
        try:
            pictures.append(Image.open(io.BytesIO(file)))
            pictures[-1].load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            raise InputError(
                f"Row {row} holds no picture that can be read: it must be a PNG, JPEG or the like, and whole."
            ) from None
    for row, picture in enumerate(pictures):
        if picture.size != pictures[0].size:
            first, other = (" x ".join(map(str, each.size)) for each in (pictures[0], picture))
            raise InputError(f"The pictures differ in size, {first} and in row {row} {other}: bring them to one size.")
        if picture.mode.startswith(("I", "F")):
            raise InputError(f"Row {row} has more than 8 bits a pixel: bring pictures to 8 bits first.")
    gray = all(picture.mode in ("1", "L") for picture in pictures)
    pixels = np.stack([np.asarray(picture.convert("L" if gray else "RGB")) for picture in pictures])
    return pixels[:, None] if gray else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def _is_record(kind: pl.DataType) -> bool:
    return isinstance(kind, pl.Struct) and any(f.name == "bytes" and f.dtype == pl.Binary for f in kind.fields)
