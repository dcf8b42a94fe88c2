import polars as pl
import pyarrow as pa
import pytest
from odd_columns import IN_PARQUET, NOT_IN_PARQUET

import labeldp as ldp
from labeldp.data.arrow_types import polars_schema, to_polars

EVERY = IN_PARQUET | NOT_IN_PARQUET
REFUSED = {
    *("list view", "large list view", "list of maps", "map", "struct of decimal256"),
    *("union", "run-end encoded", "interval", "decimal of negative scale"),
}


@pytest.mark.parametrize("name", EVERY)
def test_a_column_is_read_or_refused_in_one_sentence(name):
    batch = pa.record_batch({"x": EVERY[name]})
    if name in REFUSED:
        with pytest.raises(ldp.InputError, match=r"Column 'x' holds .*, which is not read: leave it out"):
            to_polars(batch)
        with pytest.raises(ldp.InputError, match="Column 'x' holds"):
            polars_schema(batch.schema, ["x"])
        return
    frame = to_polars(batch)
    assert frame.schema == polars_schema(batch.schema, ["x"])
    missing = 0 if name in ("tensor", "list of dictionaries") else 3 if name == "null" else 1
    assert (frame.height, frame["x"].null_count()) == (3, missing)


def test_times_decimals_and_extension_types_keep_their_values():
    names = ("timestamp of an unknown zone", "decimal256", "json", "bool8")
    batch = pa.record_batch([EVERY[name] for name in names], names=["time", "decimal", "text", "flag"])
    frame = to_polars(batch)
    assert frame["time"].to_physical().to_list() == [1, None, 3]
    assert frame["decimal"].to_list() == [1.5, None, 2.5]
    assert frame["text"].to_list() == ["1", None, "{}"]
    assert frame["flag"].to_list() == [1, None, 0]
    known = to_polars(pa.record_batch({"x": EVERY["timestamp of a zone"]}))
    assert known["x"].dtype == pl.Datetime("us", "Europe/Berlin")


def test_enums_stay_enums():
    frame = pl.DataFrame({"x": pl.Series(["a", "b"], dtype=pl.Enum(["b", "a"]))})
    assert to_polars(frame.to_arrow().to_batches()[0]).equals(frame)
