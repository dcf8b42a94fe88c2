import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array

import labeldp as ldp
from labeldp.mechanisms import GroupHistogram, LinearQuery, OneHotGaussian, OneHotLaplace, RRWithPrior
from labeldp.releases import storage
from labeldp.releases.base import Release

ROWS = 12
GENERATOR = np.random.default_rng(0)
LABELS = np.array(["a", "b", "c"])[GENERATOR.integers(0, 3, ROWS)]
PRIOR = GENERATOR.dirichlet(np.ones(3), ROWS)
QUERY = GENERATOR.normal(size=(ROWS, 2))

MECHANISMS = {
    "responses": ldp.RandomizedResponse(1.0),
    "candidates": RRWithPrior(1.0, PRIOR),
    "laplace": OneHotLaplace(1.0, height=3),
    "gaussian": OneHotGaussian(1.0, 1e-4),
    "counts": GroupHistogram(np.arange(ROWS) % 5, 1.0),
    "a group for each row": GroupHistogram(np.arange(ROWS), 1.0, 1e-4),
    "moments": LinearQuery(QUERY, 1.0, 1e-4),
    "sparse moments": LinearQuery(csr_array(QUERY), 1.0, 1e-4),
    "as many moments as rows": LinearQuery(np.eye(ROWS), 1.0, 1e-4),
}
SUFFIXES = [".npz", ".parquet"]


def release(mechanism=MECHANISMS["responses"], rows=None):
    vault = ldp.Vault(LABELS, ldp.LabelSpace(["a", "b", "c"], ordered=True), ldp.Budget(9.0, 0.1))
    return vault.release(mechanism, row_selection=rows)


def with_query(loaded, original):
    return loaded.with_query(original.query) if hasattr(original, "query") else loaded


def assert_same(loaded, original):
    assert type(loaded) is type(original)
    for name in ("space", "guarantee", "mechanism", "parameters", "entry", "n_rows", "kind"):
        assert getattr(loaded, name) == getattr(original, name)
    assert loaded.guarantee.derivation == original.guarantee.derivation
    for name, array in original.arrays().items():
        assert np.array_equal(loaded.arrays()[name], array)
        assert loaded.arrays()[name].dtype == array.dtype
    loaded = with_query(loaded, original)
    assert np.array_equal(loaded.log_evidence(), original.log_evidence())
    assert np.array_equal(loaded.labels(), original.labels())


def assert_one_sentence(refused, path):
    message = str(refused.value).replace(str(path), "FILE")
    assert message.endswith(".")
    assert ". " not in message
    assert "\n" not in message


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows", [None, [0, 3, 4]], ids=["all rows", "some rows"])
@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())
def test_what_is_saved_is_loaded(tmp_path, mechanism, rows, suffix):
    original, path = release(mechanism, rows), tmp_path / f"release{suffix}"
    original.save(str(path))
    assert_same(ldp.Release.load(str(path)), original)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_derived_releases_are_saved(tmp_path, suffix):
    subset = release().keep(np.arange(ROWS) > 2)
    derived = {
        "filtered": subset,
        "relabeled": subset.relabel(np.arange(ROWS) % 4 - 1, 0.8),
        "posterior": subset.with_posterior(PRIOR),
    }
    for name, original in derived.items():
        original.save(tmp_path / f"{name}{suffix}")
        assert_same(ldp.Release.load(tmp_path / f"{name}{suffix}"), original)


def test_parquet_shows_one_row_a_label(tmp_path):
    original = release(MECHANISMS["laplace"])
    original.save(tmp_path / "release.parquet")
    table = pq.read_table(tmp_path / "release.parquet")
    assert table["values"].to_pylist() == original.values.tolist()


class Trap:
    """Unpickling this makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_npz_is_never_unpickled(tmp_path):
    description = np.frombuffer(json.dumps(storage.describe(release())).encode(), np.uint8)
    traps = np.array([Trap(tmp_path / "sprung")] * ROWS, object)
    np.savez(tmp_path / "trap.npz", description=description, codes=traps)
    with pytest.raises(ldp.InputError, match="not a release"):
        ldp.Release.load(tmp_path / "trap.npz")
    np.savez(tmp_path / "second.npz", description=traps)
    with pytest.raises(ldp.InputError, match="not a release"):
        ldp.Release.load(tmp_path / "second.npz")
    (tmp_path / "third.npz").write_bytes(traps.dumps())
    with pytest.raises(ldp.InputError, match="not a release"):
        ldp.Release.load(tmp_path / "third.npz")
    assert not (tmp_path / "sprung").exists()


def test_parquet_is_never_unpickled(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.array([Trap(tmp_path / "sprung")], object), allow_pickle=True)
    meta = {
        "labeldp": json.dumps(storage.describe(release())),
        "labeldp.arrays": json.dumps({"codes": base64.b64encode(buffer.getvalue()).decode()}),
    }
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata(meta), tmp_path / "trap.parquet")
    with pytest.raises(ldp.InputError, match="not a release"):
        ldp.Release.load(tmp_path / "trap.parquet")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_cut_file_is_refused(tmp_path, suffix):
    path = tmp_path / f"release{suffix}"
    release().save(path)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 50), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ldp.InputError, match="damaged") as refused:
            ldp.Release.load(path)
        assert_one_sentence(refused, path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_changed_byte_is_refused_or_does_not_matter(tmp_path, suffix):
    path, original = tmp_path / f"release{suffix}", release()
    original.save(path)
    whole = path.read_bytes()
    for offset in range(0, len(whole), 2):
        changed = bytearray(whole)
        changed[offset] ^= 0x55
        path.write_bytes(changed)
        try:
            loaded = ldp.Release.load(path)
        except ldp.InputError:
            continue
        assert_same(loaded, original)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("change", [{"format": 99}, {"type": "Vault"}, {"unknown": 1}, {"space": []}], ids=str)
def test_a_description_of_something_else_is_refused(tmp_path, monkeypatch, change, suffix):
    path, describe = tmp_path / f"release{suffix}", storage.describe
    monkeypatch.setattr(storage, "describe", lambda r: describe(r) | change)
    release().save(path)
    with pytest.raises(ldp.InputError) as refused:
        ldp.Release.load(path)
    assert_one_sentence(refused, path)


@pytest.mark.parametrize("change", [{"n_rows": 5}, {"n_rows": 50}], ids=str)
def test_arrays_that_do_not_fit_the_description_are_refused(tmp_path, monkeypatch, change):
    describe = storage.describe
    monkeypatch.setattr(storage, "describe", lambda r: describe(r) | change)
    release().save(tmp_path / "release.npz")
    with pytest.raises(ldp.InputError):
        ldp.Release.load(tmp_path / "release.npz")


def test_files_of_others_are_refused(tmp_path):
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "arrays.npz", codes=np.zeros(3))
    pq.write_table(pa.table({"codes": [1]}), tmp_path / "table.parquet")
    (tmp_path / "text.npz").write_text("not a zip file")
    (tmp_path / "folder.npz").mkdir()
    for path in tmp_path.iterdir():
        with pytest.raises(ldp.InputError, match="not a release") as refused:
            ldp.Release.load(path)
        assert_one_sentence(refused, path)
    with pytest.raises(ldp.InputError, match="no file"):
        ldp.Release.load(tmp_path / "absent.npz")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_file_is_left_alone(tmp_path, suffix):
    path = tmp_path / f"release{suffix}"
    path.write_text("precious")
    with pytest.raises(ldp.InputError, match="exists") as refused:
        release().save(path)
    assert_one_sentence(refused, path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["release", "release.csv", "release.npz.bak"])
def test_another_suffix_is_refused(tmp_path, name):
    with pytest.raises(ldp.InputError, match=r"\.npz or \.parquet") as refused:
        release().save(tmp_path / name)
    assert_one_sentence(refused, tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("folder", ["absent", "file"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path, folder, suffix):
    (tmp_path / "file").touch()
    path = tmp_path / folder / f"release{suffix}"
    with pytest.raises(ldp.InputError, match=r"no folder|cannot be written") as refused:
        release().save(path)
    assert_one_sentence(refused, path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, suffix):
    def fail(source, target):
        assert Path(source).exists()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(ldp.InputError, match="No space left") as refused:
        release().save(tmp_path / f"release{suffix}")
    assert_one_sentence(refused, tmp_path / f"release{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("version", [1, 2, 4, None])
def test_only_the_present_format_is_read(version):
    vault = ldp.Vault(["no", "yes"] * 2, ldp.LabelSpace(["no", "yes"]), ldp.Budget(2.0), users=[0, 0, 1, 1])
    release = vault.release(ldp.RandomizedResponse(1.0), row_selection=[0])
    description = storage.describe(release)
    assert description["format"] == storage.FORMAT == 3
    assert all(use.packed_rows is not None for use in storage.rebuild(description, release.arrays()).lineage)
    with pytest.raises(ldp.InputError, match=f"has format {version}, and this version of labeldp reads format 3"):
        storage.rebuild(description | {"format": version}, release.arrays())


@dataclass(frozen=True, eq=False, kw_only=True)
class ExternalRelease(Release):
    kind = "likelihood"
    codes: np.ndarray

    def arrays(self):
        return {"codes": self.codes}

    def _log_scores(self, row_ids):
        return np.eye(2)[self.codes[row_ids]]


def test_a_release_of_another_library_is_read_if_its_class_is_imported():
    common = {"space": ldp.LabelSpace([0, 1]), "guarantee": ldp.Guarantee(1.0), "mechanism": "own", "n_rows": 2}
    release = ExternalRelease(codes=np.array([1, 0]), **common)
    assert storage.from_bytes(storage.to_bytes(release)).labels().tolist() == [1, 0]
    with pytest.raises(ldp.InputError, match="has the type UnknownRelease, which labeldp does not define: import"):
        storage.rebuild(storage.describe(release) | {"type": "UnknownRelease"}, release.arrays())
