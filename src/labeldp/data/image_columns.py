"""Images in a column of a table, as encoded files such as PNG or JPEG, the format of many public data sets."""

import io

import numpy as np
import polars as pl
from numpy.typing import NDArray

from labeldp.core.errors import InputError


def image_column(schema: pl.Schema) -> str:
    """Return the only column that holds encoded images: binary, or a struct with the field `bytes`."""
    found = [name for name, dtype in schema.items() if dtype == pl.Binary or _is_image_struct(dtype)]
    if len(found) != 1:
        present = f"{', '.join(map(repr, found))}: leave out all but one" if found else "none"
        raise InputError(
            f"Images need one column of picture files (PNG or JPEG as bytes), and the table has {present}.",
            parameter="excluded_columns" if found else None,
        )
    return found[0]


def read_images(column: pl.Series) -> NDArray[np.uint8]:
    """Return pixels (rows, channels, height, width), with one channel if all images are gray, else with three."""
    from PIL import Image

    files = column.struct.field("bytes") if _is_image_struct(column.dtype) else column
    if files.null_count():
        raise InputError(f"A picture is missing, first in row {int(files.is_null().arg_max() or 0)}: drop the row.")
    if not len(files):
        raise InputError("There are no pictures: the table has no rows.")
    images = []
    for row, file in enumerate(files):
        try:
            images.append(Image.open(io.BytesIO(file)))
            images[-1].load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            raise InputError(
                f"Row {row} holds no picture that can be read: it must be a PNG, JPEG or the like, and whole."
            ) from None
    for row, image in enumerate(images):
        if image.size != images[0].size:
            first, other = (" x ".join(map(str, each.size)) for each in (images[0], image))
            raise InputError(f"The pictures differ in size, {first} and in row {row} {other}: bring them to one size.")
        if image.mode.startswith(("I", "F")):
            raise InputError(f"Row {row} has more than 8 bits a pixel: bring pictures to 8 bits first.")
    gray = all(image.mode in ("1", "L") for image in images)
    pixels = np.stack([np.asarray(image.convert("L" if gray else "RGB")) for image in images])
    return pixels[:, None] if gray else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def _is_image_struct(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Struct) and any(f.name == "bytes" and f.dtype == pl.Binary for f in dtype.fields)
