import gzip
import pickle
import struct
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from labeldp.core.errors import InputError
from labeldp.data import load
from labeldp.data.pickles import read_pickle


def pixels(rows: int, channels: int, size: int) -> np.ndarray:
    return np.random.default_rng(rows).integers(0, 256, (rows, channels, size, size), dtype=np.uint8)


def as_bytes(images) -> np.ndarray:
    return (images.batch(torch.arange(len(images))) * 255).round().to(torch.uint8).numpy()


def write_cifar10(folder, protocol: int = 2) -> np.ndarray:
    folder.mkdir(parents=True)
    everything = pixels(12, 3, 32)
    for place, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        part = everything[2 * place : 2 * place + 2]
        batch = {
            b"batch_label": b"part",
            b"labels": [place, 9],
            b"data": part.reshape(2, -1),
            b"filenames": [b"a", b"b"],
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol))
    return everything


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_cifar_10_in_its_pickled_batches(tmp_path, protocol):
    everything = write_cifar10(tmp_path / "cifar-10-batches-py", protocol)
    images, labels = load("CIFAR-10", tmp_path, "train")
    assert np.array_equal(as_bytes(images), everything[:10])
    assert labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    assert labels.dtype == np.int64
    assert images.flip
    images, labels = load("cifar10", str(tmp_path / "cifar-10-batches-py"), "test", flip=False)
    assert np.array_equal(as_bytes(images), everything[10:])
    assert not images.flip


def test_a_batch_pickled_by_python_2(tmp_path):
    """The official files were written by Python 2, whose texts are bytes and whose arrays name an older module."""
    raw = bytes(range(256)) * 12
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x01M\x00\x0c\x86"
        + dtype
        + b"\x89T"
        + struct.pack("<i", len(raw))
        + raw
        + b"tb"
    )
    (tmp_path / "train").write_bytes(b"\x80\x02}(U\x04data" + array + b"U\x0bfine_labels]K\x07au.")
    images, labels = load("cifar100", tmp_path, "train")
    assert as_bytes(images).tobytes() == raw
    assert labels.tolist() == [7]


class Malicious:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    import os

    marker = tmp_path / "ran"
    path = tmp_path / "test_batch"
    for bad in (
        Malicious(os.mkdir, str(marker)),
        Malicious(eval, f"open({str(marker)!r}, 'w')"),
        Malicious(getattr, 1, "real"),
    ):
        for protocol in (0, 2, 5):
            path.write_bytes(pickle.dumps({"data": bad}, protocol))
            with pytest.raises(InputError, match="which no array needs"):
                load("cifar10", tmp_path, "test")
    assert not marker.exists()


@pytest.mark.parametrize(
    "array", [np.array([{}], object), np.ones(3), np.array(["text"]), np.zeros(2, [("a", "i4")]), np.array([True])]
)
def test_arrays_of_something_else_than_integers_are_refused(tmp_path, array):
    (tmp_path / "p").write_bytes(pickle.dumps({"data": array}))
    with pytest.raises(InputError, match="damaged or no plain pickle"):
        read_pickle(tmp_path / "p")


def test_integer_arrays_of_any_layout_are_read(tmp_path):
    batch = {
        "big": np.arange(6, dtype=">i4").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "none": np.empty((0, 3), np.uint8),
    }
    for protocol in (2, 5):
        (tmp_path / "p").write_bytes(pickle.dumps(batch, protocol))
        found = read_pickle(tmp_path / "p")
        assert all(np.array_equal(found[name], array) for name, array in batch.items())


def test_damaged_cifar_files(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-py")
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    whole = path.read_bytes()
    for content in (
        b"",
        whole[: len(whole) // 2],
        b"not a pickle at all",
        pickle.dumps([1]),
        whole[:200] + whole[205:],
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match="test_batch"):
            load("cifar10", tmp_path, "test")
    rows = np.zeros((2, 3072), np.uint8)
    for batch, words in (
        ({"data": rows[:, 1:], "labels": [1, 2]}, "3072"),
        ({"labels": [1, 2]}, "3072"),
        ({"data": rows}, "one integer label"),
        ({"data": rows, "labels": [1]}, "one integer label"),
        ({"data": rows, "labels": [[1], [2, 3]]}, "one integer label"),
        ({"data": rows, "labels": ["a", "b"]}, "one integer label"),
    ):
        path.write_bytes(pickle.dumps(batch))
        with pytest.raises(InputError, match=words):
            load("cifar10", tmp_path, "test")
    path.unlink()
    with pytest.raises(InputError, match=r"no file .*test_batch"):
        load("cifar10", tmp_path, "test")


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder, packed: bool, mark: str = "-") -> np.ndarray:
    everything = pixels(5, 1, 28)
    for start in ("train", "t10k"):
        for name, array in (
            (f"images{mark}idx3", everything[:, 0]),
            (f"labels{mark}idx1", np.arange(5, dtype=np.uint8)),
        ):
            content = gzip.compress(idx(array)) if packed else idx(array)
            (folder / f"{start}-{name}-ubyte{'.gz' if packed else ''}").write_bytes(content)
    return everything


@pytest.mark.parametrize(("packed", "mark"), [(True, "-"), (False, "-"), (False, ".")])
def test_idx_files(tmp_path, packed, mark):
    everything = write_idx(tmp_path, packed, mark)
    for name, flip in (("mnist", False), ("Fashion_MNIST", True), ("kmnist", False), ("idx", False)):
        for split in ("train", "test"):
            images, labels = load(name, tmp_path, split)
            assert np.array_equal(as_bytes(images), everything)
            assert labels.tolist() == [0, 1, 2, 3, 4]
            assert images.flip is flip
    assert load("idx", tmp_path, flip=True)[0].flip


def test_damaged_idx_files(tmp_path):
    for packed, name in ((False, "t10k-images-idx3-ubyte"), (True, "train-images-idx3-ubyte.gz")):
        write_idx(tmp_path, packed)
        whole = (tmp_path / name).read_bytes()
        for content in (b"", whole[:6], whole[:-9], whole + b"1234567890", b"\0\0\x0d" + whole[3:]):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(InputError, match=name):
                load("mnist", tmp_path, "train" if packed else "test")
        for file in tmp_path.iterdir():
            file.unlink()
    write_idx(tmp_path, packed=False)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(4, dtype=np.uint8)))
    with pytest.raises(InputError, match="5 images but 4 labels"):
        load("mnist", tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError, match=r"no file .*train-labels"):
        load("mnist", tmp_path)


def test_svhn(tmp_path):
    everything = pixels(4, 3, 32)
    labels = np.array([[10], [1], [9], [10]], np.uint8)
    savemat(tmp_path / "extra_32x32.mat", {"X": everything.transpose(2, 3, 1, 0), "y": labels})
    images, found = load("svhn", tmp_path, "extra")
    assert np.array_equal(as_bytes(images), everything)
    assert found.tolist() == [0, 1, 9, 0]
    assert not images.flip
    savemat(tmp_path / "test_32x32.mat", {"X": everything, "y": labels})
    savemat(tmp_path / "train_32x32.mat", {"z": labels})
    for split, words in (("test", "no SVHN file"), ("train", "damaged or no MATLAB")):
        with pytest.raises(InputError, match=words):
            load("svhn", tmp_path, split)
    (tmp_path / "test_32x32.mat").write_bytes(b"MATLAB 5.0 and then nothing")
    with pytest.raises(InputError, match="damaged or no MATLAB"):
        load("svhn", tmp_path, "test")


def write_picture(path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def test_a_folder_of_pictures_by_class(tmp_path):
    everything = pixels(3, 3, 8).transpose(0, 2, 3, 1)
    for place, name in enumerate(("train/bird/b.png", "train/bird/a.png", "train/cat/c.png")):
        write_picture(tmp_path / name, everything[place])
    gray = everything[0, :, :, 0]
    write_picture(tmp_path / "valid/cat/gray.png", gray)
    (tmp_path / "train/bird/notes.txt").write_text("no picture")
    images, labels = load("CINIC-10", tmp_path, "train")
    found = {picture.tobytes(): label for picture, label in zip(as_bytes(images), labels.tolist(), strict=True)}
    assert found == {everything[place].transpose(2, 0, 1).tobytes(): label for place, label in enumerate((0, 0, 1))}
    assert images.flip
    images, labels = load("folder", tmp_path, "valid")
    assert labels.tolist() == [1]  # the class keeps its number though the other has no folder here
    assert np.array_equal(as_bytes(images)[0], np.stack([gray] * 3))
    assert not images.flip


def test_the_order_of_a_folders_rows_says_nothing_about_classes(tmp_path):
    """The same pictures, dealt to classes in two ways, come in one order: by folders, it would name the classes."""
    everything, orders = pixels(40, 3, 8).transpose(0, 2, 3, 1), []
    for world in ("one", "other"):
        for place, picture in enumerate(everything):
            kind = "ill" if (place < 20) == (world == "one") else "well"
            write_picture(tmp_path / world / "train" / kind / f"{place}.png", picture)
        images, labels = load("folder", tmp_path / world)
        orders.append(as_bytes(images))
        assert 4 < np.count_nonzero(np.diff(labels)) < 36  # about every other row, as by chance
    assert np.array_equal(*orders)


def test_folders_that_cannot_be_read(tmp_path):
    write_picture(tmp_path / "train/a/1.png", np.zeros((8, 8, 3), np.uint8))
    write_picture(tmp_path / "train/b/2.png", np.zeros((8, 9, 3), np.uint8))
    with pytest.raises(InputError, match=r"one size: \d\.png is \d x 8, \d\.png is \d x 8"):
        load("folder", tmp_path)
    (tmp_path / "train/b/2.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"picture 2\.png is damaged"):
        load("folder", tmp_path)
    (tmp_path / "test/a").mkdir(parents=True)
    with pytest.raises(InputError, match="holds no pictures"):
        load("folder", tmp_path, "test")
    with pytest.raises(InputError, match=r"no folder .*valid"):
        load("folder", tmp_path, "valid")


def test_pictures_need_pillow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match="needs Pillow"):
        load("folder", tmp_path)


def test_unknown_names_folders_and_splits(tmp_path):
    with pytest.raises(InputError, match="no loader for 'imagenet'"):
        load("imagenet", tmp_path)
    with pytest.raises(InputError, match=r"no folder"):
        load("mnist", tmp_path / "nowhere")
    for name in ("cifar10", "cifar100", "mnist", "svhn"):
        with pytest.raises(InputError, match="no split 'dev'"):
            load(name, tmp_path, "dev")
