import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import labeldp as ldp
from labeldp.data.feature_reader import FeatureReader, is_frame, to_frame

FRAME = pl.DataFrame({"age": [30.0, None, 50.0], "job": ["clerk", "chief", None], "fast": [True, False, None]})


def values(features):
    return features.batch(torch.arange(len(features))).numpy()


@pytest.mark.parametrize("make", [lambda frame: frame, pl.DataFrame.to_pandas], ids=["polars", "pandas"])
def test_a_frame_is_a_table_and_its_columns_are_found_by_name(make):
    reader, features = FeatureReader.fit(make(FRAME))
    assert reader.kind == "table"
    assert reader.columns == ("age", "job", "fast")
    mixed = make(FRAME.select("fast", "job", "age").with_columns(extra=1))
    assert (values(reader(mixed)) == values(features)).all()
    with pytest.raises(ldp.InputError, match="lack the column 'job'"):
        reader(make(FRAME.drop("job")))


def test_a_fitted_reader_survives_json():
    reader, features = FeatureReader.fit(FRAME)
    read = FeatureReader.from_json(json.loads(json.dumps(reader.to_json())))
    assert read.to_json() == json.loads(json.dumps(reader.to_json()))
    assert (values(read(FRAME)) == values(features)).all()
    strange = read(
        pl.DataFrame({"age": [None], "job": ["pilot"], "fast": [None]}, schema_overrides={"age": pl.Float64})
    )
    assert values(strange)[0, 0] == 40.0  # the median
    assert values(strange).sum() == 40.0 + 1 + 1 + 1  # age is missing, another job, fast is missing


def test_an_incomplete_description_is_refused_when_it_is_read():
    with pytest.raises(KeyError):
        FeatureReader.from_json({"kind": "table", "columns": [], "encoding": {}, "flip": False})


def test_texts_are_the_columns_that_a_file_must_not_turn_into_numbers():
    assert FeatureReader.fit(FRAME)[0].text_columns == ["job"]
    assert FeatureReader.fit(np.zeros((3, 2)))[0].text_columns == []
    assert FeatureReader.fit(np.zeros((3, 2)), "embeddings")[0].text_columns == []


def test_a_matrix_is_a_table_of_numbers():
    matrix = np.array([[1, 2], [3, np.nan], [5, 6]])
    reader, features = FeatureReader.fit(matrix)
    assert reader.columns == ()
    assert (values(reader(matrix)) == values(features)).all()
    assert (values(reader(pl.DataFrame(matrix, ["a", "b"]))) == values(features)).all()  # by place


def test_a_matrix_can_stand_for_a_frame_by_the_places_of_its_columns():
    frame = pl.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0]})
    reader, features = FeatureReader.fit(frame)
    assert (values(reader(frame.to_numpy())) == values(features)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_embeddings_keep_their_scale(dtype):
    matrix = np.array([[1, 200], [3, 4]], dtype)
    reader, features = FeatureReader.fit(matrix, "embeddings")
    assert features.kind == "embeddings"
    assert (values(reader(matrix)) == matrix).all()
    assert (values(FeatureReader.fit(pd.DataFrame(matrix), "embeddings")[1]) == matrix).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_images_come_with_channels_first_or_last(channels):
    pixels = np.random.default_rng(0).integers(0, 255, (4, 8, 10, channels), np.uint8)
    reader, features = FeatureReader.fit(pixels)
    assert reader.kind == "images"
    assert features.shape == (channels, 8, 10)
    assert (values(reader(pixels.transpose(0, 3, 1, 2))) == values(features)).all()


def test_bad_input_is_one_sentence():
    cases = {
        "features must be": (np.zeros((2, 2)), "sounds"),
        "two axes": (np.zeros((2, 2, 2)), "table"),
        "must be numbers": (FRAME, "embeddings"),
        "must be finite": (np.full((2, 2), np.nan), "embeddings"),
        "must be uint8": (np.zeros((2, 8, 8, 1)), "auto"),
        "no rows or no columns": (FRAME.head(0), "auto"),
        "give each column one type": (pd.DataFrame({"a": [1, "x"]}), "auto"),
        "a name of its own": (pd.DataFrame(np.zeros((2, 2)), columns=["a", "a"]), "auto"),
    }
    for message, (data, kind) in cases.items():
        with pytest.raises(ldp.InputError, match=message) as caught:
            FeatureReader.fit(data, kind)
        assert "\n" not in str(caught.value)


def test_only_frames_are_frames():
    assert is_frame(pd.DataFrame({"a": [1]}))
    assert is_frame(FRAME)
    assert not is_frame(pd.Series([1]))
    assert not is_frame(np.zeros((1, 1)))
    assert to_frame(pd.DataFrame({0: [1], 1: [2]})).columns == ["0", "1"]
