"""Loaders of well-known image data sets, from the files that their authors publish. Nothing is downloaded."""

import gzip
import hashlib
import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from labeldp.core.errors import InputError
from labeldp.data.images import Images
from labeldp.data.pickles import read_pickle

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_SPLITS = ("train", "valid", "val", "test")


class _ImageSource(NamedTuple):
    read: Callable[[Path, str], Arrays]
    flip: bool


def load(
    name: str, folder: str | Path, split: str = "train", flip: bool | None = None, device: str | torch.device = "cpu"
) -> tuple[Images, NDArray[np.int64]]:
    """Read one split of a data set, with labels from 0.

    Args:
        name: A data set (cifar10, cifar100, mnist, fashion-mnist, kmnist, svhn or cinic10, in any spelling) or a
            format: "idx" for files named as those of MNIST, or "folder" for split/class/picture, with classes in
            alphabetical order.
        folder: The folder of the files.
        split: "train" or "test"; CINIC-10 also has "valid", SVHN "extra".
        flip: Whether images may be flipped. By default it is known for a data set, and false for a format.
        device: The device of the pixels.
    """
    source = SOURCES.get(re.sub("[^a-z0-9]", "", name.lower()))
    if source is None:
        raise InputError(f"There is no loader for {name!r}: choose one of {', '.join(SOURCES)}.")
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"There is no folder {path}.")
    pixels, labels = source.read(path, split)
    if len(pixels) != len(labels):
        raise InputError(f"{path} holds {len(pixels)} images but {len(labels)} labels for {split!r}.")
    return Images(pixels, source.flip if flip is None else flip, device), labels


def _cifar_reader(subfolder: str, parts: dict[str, list[str]], key: str) -> Callable[[Path, str], Arrays]:
    def read(folder: Path, split: str) -> Arrays:
        folder = folder / subfolder if (folder / subfolder).is_dir() else folder
        pixels, labels = [], []
        for name in parts[_check_split(split, tuple(parts))]:
            path = _check_file(folder / name)
            part = read_pickle(path)
            data = part.get("data")
            if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
                raise InputError(f"{path} is no CIFAR batch: it holds no uint8 rows of 3072 pixels.")
            pixels.append(data.reshape(-1, 3, 32, 32))
            labels.append(_parse_labels(part.get(key), len(data), path))
        return np.concatenate(pixels), np.concatenate(labels)

    return read


def _parse_labels(values: Any, n_images: int, path: Path) -> NDArray[np.int64]:
    try:
        labels = np.asarray(values)
    except ValueError:
        labels = np.empty(0)
    if labels.shape != (n_images,) or (n_images and labels.dtype.kind not in "iu"):
        raise InputError(f"{path} must hold one integer label for each of its {n_images} images.")
    return labels.astype(np.int64)


def _read_idx(folder: Path, split: str) -> Arrays:
    prefix = {"train": "train", "test": "t10k"}[_check_split(split, ("train", "test"))]
    images = _read_idx_file(folder, f"{prefix}-images", 3)
    return images[:, None], _read_idx_file(folder, f"{prefix}-labels", 1).astype(np.int64)


def _read_idx_file(folder: Path, name: str, dimensions: int) -> NDArray[np.uint8]:
    stems = [f"{name}{mark}idx{dimensions}-ubyte" for mark in "-."]
    existing = [path for stem in stems for end in ("", ".gz") if (path := folder / (stem + end)).is_file()]
    path = _check_file(existing[0] if existing else folder / stems[0])
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if file.read(4) != bytes([0, 0, 8, dimensions]):
                raise InputError(f"{path} is no idx file of bytes with {dimensions} dimensions.")
            shape = np.frombuffer(file.read(4 * dimensions), ">u4").tolist()
            expected = math.prod(shape)
            content = file.read(expected + 1)
    except (OSError, EOFError, ValueError, zlib.error):
        raise InputError(f"{path} is damaged: it cannot be read to its end.") from None
    if len(shape) != dimensions or len(content) != expected:
        raise InputError(f"{path} is damaged: it does not hold as many bytes as it says.")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _read_svhn(folder: Path, split: str) -> Arrays:
    from scipy.io import loadmat  # slow to import, and needed here only

    path = _check_file(folder / f"{_check_split(split, ('train', 'test', 'extra'))}_32x32.mat")
    try:
        content = loadmat(path, variable_names=["X", "y"])
        pixels, labels = content["X"], content["y"]
    except Exception:  # a damaged file can raise nearly anything
        raise InputError(f"{path} is damaged or no MATLAB file with X and y.") from None
    if pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3) or pixels.dtype != np.uint8:
        raise InputError(f"{path} is no SVHN file: X must be uint8 of shape (32, 32, 3, rows).")
    codes = _parse_labels(labels.ravel(), pixels.shape[3], path) % 10  # the files store 0 as 10
    return pixels.transpose(3, 2, 0, 1), codes


def _read_folder(folder: Path, split: str) -> Arrays:
    try:
        from PIL import Image  # an optional dependency
    except ImportError:
        raise InputError("Reading a folder of pictures needs Pillow: pip install pillow.") from None
    if not (folder / split).is_dir():
        raise InputError(f"There is no folder {folder / split}.")
    # The classes of all splits, so that a class without rows in this split does not change the codes of others.
    splits = {split, *_SPLITS}
    classes = sorted({c.name for s in splits for c in folder.glob(f"{s}/*") if c.is_dir() and c.name[0] != "."})
    # The order of rows is public. It must depend on the pictures only, not on the classes as that of folders does.
    paths = sorted(
        (
            (path, label)
            for label, name in enumerate(classes)
            for path in (folder / split / name).glob("*")
            if path.suffix.lower() in _IMAGE_SUFFIXES and path.name[0] != "." and path.is_file()
        ),
        key=lambda each: (hashlib.sha256(each[0].read_bytes()).digest(), each[0].name),
    )
    pixels = np.empty((0, 0, 0, 3), np.uint8)
    for index, (path, _) in enumerate(paths):
        try:
            with Image.open(path) as image:
                array = np.asarray(image.convert("RGB"))
        except Exception:  # a damaged picture can raise nearly anything
            raise InputError(f"The picture {path.name} is damaged or none.") from None
        if index == 0:
            pixels = np.empty((len(paths), *array.shape), np.uint8)
        if array.shape != pixels.shape[1:]:
            raise InputError(
                f"Pictures must have one size: {path.name} is {array.shape[1]} x {array.shape[0]}, "
                f"{paths[0][0].name} is {pixels.shape[2]} x {pixels.shape[1]}."
            )
        pixels[index] = array
    if not paths:
        raise InputError(f"{folder / split} holds no pictures in folders named by class.")
    return pixels.transpose(0, 3, 1, 2), np.array([label for _, label in paths], np.int64)


def _check_split(split: str, splits: tuple[str, ...]) -> str:
    if split not in splits:
        raise InputError(f"There is no split {split!r}: choose {' or '.join(splits)}.")
    return split


def _check_file(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    return path


_CIFAR10 = {"train": [f"data_batch_{part}" for part in range(1, 6)], "test": ["test_batch"]}
SOURCES: dict[str, _ImageSource] = {
    "cifar10": _ImageSource(_cifar_reader("cifar-10-batches-py", _CIFAR10, "labels"), True),
    "cifar100": _ImageSource(
        _cifar_reader("cifar-100-python", {"train": ["train"], "test": ["test"]}, "fine_labels"), True
    ),
    "mnist": _ImageSource(_read_idx, False),
    "fashionmnist": _ImageSource(_read_idx, True),
    "kmnist": _ImageSource(_read_idx, False),
    "svhn": _ImageSource(_read_svhn, False),
    "cinic10": _ImageSource(_read_folder, True),
    "idx": _ImageSource(_read_idx, False),
    "folder": _ImageSource(_read_folder, False),
}
