"""Storage of releases as arrays and a JSON description, never as a pickle."""

import base64
import dataclasses
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from labeldp.accounting.costs import LabelUse
from labeldp.core.atomic_files import atomic_write, check_writable
from labeldp.core.errors import InputError
from labeldp.core.guarantee import Guarantee
from labeldp.core.label_space import LabelSpace
from labeldp.releases.base import Arrays, Release
from labeldp.releases.counts import NoisyCounts
from labeldp.releases.derived import Posterior, PseudoLabels
from labeldp.releases.moments import NoisyMoments, NoisySums
from labeldp.releases.numeric import NoisyBins, NoisyGrid
from labeldp.releases.onehot import NoisyOneHot
from labeldp.releases.responses import Responses
from labeldp.releases.scores import Choice, Choices, NoisyCorrectCount, NoisyLoss

# The format of the description; no other format is read. Format 3 renamed fields of releases.
FORMAT = 3
_PER_ROW_ARRAYS = {"codes", "candidates", "values", "groups", "probabilities", "row_mask"}
_CLASS_RELEASES = (
    Responses,
    NoisyOneHot,
    NoisyCounts,
    NoisyMoments,
    NoisyCorrectCount,
    Choice,
    Choices,
    PseudoLabels,
    Posterior,
)
_RELEASE_TYPES = (*_CLASS_RELEASES, NoisyBins, NoisyGrid, NoisySums, NoisyLoss)
_FIELD_OF_ARRAY = {"gram": "stored_gram"}  # arrays whose field has another name
_TYPE_BY_NAME: dict[str, Any] = {cls.__name__: cls for cls in _RELEASE_TYPES}


def describe(release: Release) -> dict[str, Any]:
    """Return the description of a release without its arrays, as JSON."""
    excluded = {_FIELD_OF_ARRAY.get(name, name) for name in release.arrays()} | {
        "lineage",
        "row_mask",
        "query",
        "space",
        "guarantee",
    }
    fields = {f.name: getattr(release, f.name) for f in dataclasses.fields(release) if f.name not in excluded}
    fields = {name: value for name, value in fields.items() if value is not None}
    return fields | {
        "format": FORMAT,
        "type": type(release).__name__,
        "space": release.space.to_json(),
        "guarantee": release.guarantee.to_json(),
        "lineage": [use.to_json() for use in release.lineage],
    }


def rebuild(description: dict[str, Any], arrays: Arrays) -> Release:
    """Return the release with this description and these arrays.

    Raises:
        InputError: The description has another format, an unknown type, or does not fit the arrays.
    """
    fields = dict(description)
    format_version = fields.pop("format")
    if format_version != FORMAT:
        raise InputError(
            f"This release has format {format_version}, and this version of labeldp reads format {FORMAT}: read it "
            "with the version that wrote it."
        )
    release_type = _find_release_type(fields.pop("type"))
    if any(len(arrays[name]) != fields["n_rows"] for name in _PER_ROW_ARRAYS & arrays.keys()):
        raise InputError("This release is damaged: its arrays do not have the declared length.")
    fields["space"] = LabelSpace.from_json(fields["space"])
    fields["guarantee"] = Guarantee(**fields["guarantee"])
    fields["lineage"] = tuple(LabelUse.from_json(use) for use in fields["lineage"])
    return release_type(**fields, **{_FIELD_OF_ARRAY.get(name, name): array for name, array in arrays.items()})


def _find_release_type(name: str) -> Any:
    """Return a class of releases by name: one of this library, or another one that has been imported."""
    if name in _TYPE_BY_NAME:
        return _TYPE_BY_NAME[name]
    types, pending = dict[str, Any](), [Release]
    while pending:
        subclasses = pending.pop().__subclasses__()
        types |= {subclass.__name__: subclass for subclass in subclasses}
        pending += subclasses
    if name not in types:
        raise InputError(
            f"This release has the type {name}, which labeldp does not define: import the module that defines it."
        )
    return types[name]


def to_bytes(release: Release) -> bytes:
    """Return the release as the bytes of an npz file."""
    buffer = io.BytesIO()
    description = np.frombuffer(json.dumps(describe(release)).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, description=description, **_all_arrays(release))
    return buffer.getvalue()


def from_bytes(data: bytes) -> Release:
    """Read what `to_bytes` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return rebuild(json.loads(arrays.pop("description").tobytes()), arrays)


def save(release: Release, path: Path) -> None:
    """Write a release atomically to `path`, which ends in .npz or .parquet."""
    check_writable(path, ".npz", ".parquet")
    with atomic_write(path) as partial:
        if path.suffix == ".npz":
            partial.write_bytes(to_bytes(release))
        else:
            pq.write_table(_to_table(release), partial)


def load(path: Path) -> Release:
    """Read a release; raise InputError if the file is not one."""
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    try:
        return _from_table(pq.read_table(path)) if path.suffix == ".parquet" else from_bytes(path.read_bytes())
    except InputError:
        raise
    except Exception:  # a damaged file can fail anywhere in NumPy, zip or Arrow
        raise InputError(f"{path} is not a release that labeldp wrote, or it is damaged.") from None


def _all_arrays(release: Release) -> Arrays:
    return release.arrays() | ({} if release.row_mask is None else {"row_mask": release.row_mask})


def _checksum(description: str, arrays: Arrays) -> str:
    """Return a checksum for Parquet files, whose pages have none by default."""
    digest = hashlib.sha256(description.encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


# In Parquet, arrays with one entry for each row are columns, which any tool can read. Other arrays are metadata.


def _to_table(release: Release) -> pa.Table:
    columns, extra = {}, {}
    arrays, description = _all_arrays(release), json.dumps(describe(release))
    for name, array in arrays.items():
        if name not in _PER_ROW_ARRAYS:
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            extra[name] = base64.b64encode(buffer.getvalue()).decode()
        elif array.ndim == 1:
            columns[name] = pa.array(array)
        else:
            columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])
    meta = {
        "labeldp": description,
        "labeldp.arrays": json.dumps(extra),
        "labeldp.sha256": _checksum(description, arrays),
    }
    return pa.table(columns).replace_schema_metadata(meta)


def _from_table(table: pa.Table) -> Release:
    meta = table.schema.metadata
    arrays: Arrays = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        flat = column.combine_chunks()
        if pa.types.is_fixed_size_list(flat.type):
            arrays[name] = flat.flatten().to_numpy().reshape(len(flat), flat.type.list_size)
        else:
            arrays[name] = flat.to_numpy(zero_copy_only=False)
    for name, text in json.loads(meta[b"labeldp.arrays"]).items():
        arrays[name] = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
    if _checksum(meta[b"labeldp"].decode(), arrays) != meta[b"labeldp.sha256"].decode():
        raise InputError("This release is damaged: its checksum does not match.")
    return rebuild(json.loads(meta[b"labeldp"]), arrays)
