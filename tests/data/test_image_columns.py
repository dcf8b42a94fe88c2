import io

import numpy as np
import polars as pl
import pytest
from PIL import Image

import labeldp as ldp
from labeldp.data.feature_reader import FeatureReader
from labeldp.data.image_columns import image_column, read_images

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


FILES = [png(pixels) for pixels in PIXELS]


@pytest.mark.parametrize("column", [pl.Series(FILES), pl.Series([{"bytes": file, "path": "a.png"} for file in FILES])])
def test_pictures_are_read_exactly_from_bytes_and_from_records(column):
    frame = pl.DataFrame({"image": column, "note": ["x"] * 4})
    assert image_column(frame.schema) == "image"
    assert np.array_equal(read_images(frame["image"]), PIXELS.transpose(0, 3, 1, 2))
    reader, images = FeatureReader.fit(frame, "images")
    assert images.shape == (3, 6, 5)
    assert reader.columns == ("image",)
    assert len(FeatureReader.from_json(reader.to_json())(frame.head(2))) == 2


def test_gray_pictures_have_one_channel():
    gray = read_images(pl.Series([png(pixels[..., 0]) for pixels in PIXELS]))
    assert np.array_equal(gray[:, 0], PIXELS[..., 0])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pl.Series([FILES[0], None]), "missing, first in row 1"),
        (pl.Series([FILES[0], b"nonsense"]), "Row 1 holds no picture"),
        (pl.Series([FILES[0], FILES[1][:-30]]), "Row 1 holds no picture"),
        (pl.Series([], dtype=pl.Binary), "There are no pictures"),
        (pl.Series([FILES[0], png(PIXELS[0, :3])]), "differ in size, 5 x 6 and in row 1 5 x 3"),
        (pl.Series([png(PIXELS[0, ..., 0].astype(np.uint16) * 200)]), "Row 0 has more than 8 bits a pixel"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(column, message):
    with pytest.raises(ldp.InputError, match=message):
        read_images(column)


def test_a_picture_that_is_too_large_to_be_one_is_refused(monkeypatch):
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 5)
    with pytest.raises(ldp.InputError, match="Row 0 holds no picture"):
        read_images(pl.Series(FILES))


@pytest.mark.parametrize("columns", [{"a": [1]}, {"a": [b"x"], "b": [b"y"]}])
def test_images_need_one_column_of_files(columns):
    with pytest.raises(ldp.InputError, match="one column of picture files"):
        image_column(pl.DataFrame(columns).schema)
