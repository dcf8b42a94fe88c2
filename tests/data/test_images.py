import numpy as np
import pytest
import torch

from labeldp.core.errors import InputError
from labeldp.data import Images


def pictures(rows: int = 20, channels: int = 3, height: int = 16, width: int = 16) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (rows, channels, height, width), dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_is_the_pixels_as_floats_in_channels_last(channels):
    pixels = pictures(channels=channels, width=12)
    images = Images(pixels)
    batch = images.batch(torch.tensor([3, 3, 0]))
    assert (len(images), images.kind, images.shape) == (20, "images", (channels, 16, 12))
    assert batch.dtype == torch.float32
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal((batch.numpy() * 255).round().astype(np.uint8), pixels[[3, 3, 0]])
    assert np.array_equal(batch.numpy(), pixels[[3, 3, 0]].astype(np.float32) / np.float32(255))


def test_a_tensor_and_a_read_only_array_serve_as_well():
    pixels = pictures()
    rows = torch.arange(20)
    expected = Images(pixels).batch(rows)
    assert torch.equal(Images(torch.from_numpy(pixels)).batch(rows), expected)
    pixels.flags.writeable = False
    assert torch.equal(Images(pixels, device=torch.device("cpu")).batch(rows), expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("flip", [True, False])
def test_augmentations_vary_rows_by_themselves(channels, flip):
    torch.manual_seed(0)
    images = Images(np.repeat(pictures(1, channels), 32, 0), flip)
    batch = images.batch(torch.arange(32))
    varied = {name: getattr(images, name)(batch) for name in ("weak", "strong", "view")}
    for result in varied.values():
        assert result.shape == batch.shape
        assert result.is_contiguous(memory_format=torch.channels_last)
        assert result.min() >= 0
        assert result.max() <= 1
        assert len({row.contiguous().numpy().tobytes() for row in result}) > 10
    assert not torch.equal(varied["weak"], varied["strong"])
    assert torch.equal(batch, images.batch(torch.arange(32)))  # the batch itself is left alone


@pytest.mark.parametrize("channels", [1, 3])
def test_views_may_be_smaller_and_keep_their_shape(channels):
    torch.manual_seed(0)
    images = Images(np.full((8, channels, 16, 32), 100, np.uint8))
    small = images.view(images.batch(torch.arange(8)), 12)
    assert small.shape == (8, channels, 12, 24)
    assert small.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(small, small.mean((2, 3), keepdim=True), atol=1e-5)  # a constant color stays constant


def edge_picture() -> np.ndarray:
    pixels = np.zeros((300, 3, 32, 32), np.uint8)
    pixels[:, :, :, 16:] = 255  # dark on the left, bright on the right: a flip shows
    return pixels


@pytest.mark.parametrize("name", ["weak", "view"])
def test_flips_occur_only_where_they_may(name):
    torch.manual_seed(0)
    for flip in (True, False):
        images = Images(edge_picture(), flip)
        varied = getattr(images, name)(images.batch(torch.arange(300)))
        mirrored = (varied[..., 0].mean((1, 2)) > varied[..., -1].mean((1, 2)) + 0.1).sum()
        assert (60 < mirrored < 200) if flip else mirrored == 0


def test_without_flips_even_strong_turns_only_a_little(monkeypatch):
    angles = []
    monkeypatch.setattr("labeldp.data.augment.randaugment", lambda i, operations, degrees: angles.append(degrees) or i)
    for flip in (True, False):
        images = Images(edge_picture()[:50], flip)
        varied = images.strong(images.batch(torch.arange(50)))
        bright_left = ((varied[..., 0] > 0.9).sum((1, 2)) > 16).any()
        assert bool(bright_left) == flip
    assert angles == [30.0, 10.0]


def test_weak_without_flip_shows_no_mirrored_piece():
    torch.manual_seed(0)
    pixels = np.zeros((100, 1, 16, 16), np.uint8)
    pixels[:, :, :, 1] = 255  # one stroke near the edge: reflection would draw it twice
    images = Images(pixels, flip=False)
    strokes = (images.weak(images.batch(torch.arange(100)))[:, 0, 8] > 0.5).int()
    starts = (strokes.diff(dim=1) == 1).sum(1) + strokes[:, 0]
    assert starts.max() == 1


def test_selecting_and_moving():
    images = Images(pictures(), flip=False)
    mask = np.arange(20) % 3 == 0
    for rows in (mask, np.flatnonzero(mask), mask.tolist(), torch.from_numpy(mask), np.flatnonzero(mask) - 20):
        part = images.select(rows)
        assert len(part) == 7
        assert part.flip is False
        assert torch.equal(part.batch(torch.tensor([6])), images.batch(torch.tensor([18])))
    assert len(images.select([])) == 0
    assert images.to("cpu").device == torch.device("cpu")
    assert len(images) == 20


def test_moments_are_those_of_all_pixels():
    pixels = pictures()
    mean, deviation = Images(pixels).moments()
    assert np.allclose(mean, (pixels / 255).mean((0, 2, 3)), atol=1e-6)
    assert np.allclose(deviation, (pixels / 255).std((0, 2, 3)), atol=1e-6)
    assert Images(np.full((3, 1, 4, 4), 77, np.uint8)).moments()[1].tolist() == [1]


@pytest.mark.parametrize(
    "wrong", [np.zeros((2, 3, 4, 4)), np.zeros((2, 4, 4), np.uint8), np.zeros((2, 2, 4, 4), np.uint8)]
)
def test_other_arrays_are_refused(wrong):
    with pytest.raises(InputError, match="Images must be uint8"):
        Images(wrong)


def test_rows_that_are_not_there_are_refused():
    images = Images(pictures())
    for wrong, words in (([20], "beyond"), ([0.5], "integers"), (np.ones(3, bool), "mask"), ([[1]], "integers")):
        with pytest.raises(InputError, match=words):
            images.select(wrong)
    with pytest.raises(InputError, match="no mean"):
        images.select([]).moments()
    with pytest.raises(InputError, match="one pixel"):
        Images(np.zeros((2, 3, 0, 4), np.uint8))


def test_a_digest_knows_pixels_and_whether_mirror_images_mean_the_same():
    pixels = pictures()
    others = [Images(pixels, flip=False), Images(pixels[::-1].copy()), Images(pixels[:19])]
    digests = {images.digest() for images in [Images(pixels), Images(pixels.copy()), *others]}
    assert len(digests) == 4
