import pytest
import torch

from labeldp.data import augment


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(7)


def repeated(rows: int = 64, channels: int = 3, size: int = 16) -> torch.Tensor:
    return torch.rand(1, channels, size, size).expand(rows, -1, -1, -1)


AUGMENTATIONS = {
    "flip": augment.flip,
    "shift": lambda images: augment.shift(images, 3),
    "edge": lambda images: augment.shift(images, 3, reflect=False),
    "crop": augment.resized_crop,
    "jitter": augment.jitter,
    "randaugment": augment.randaugment,
    "cutout": augment.cutout,
    "strong": augment.randaugment_and_cutout,
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_rows_are_varied_by_themselves_and_stay_pictures(name, channels):
    pictures = repeated(channels=channels)
    varied = AUGMENTATIONS[name](pictures)
    assert varied.shape == pictures.shape
    assert varied.dtype == torch.float32
    assert varied.isfinite().all()
    assert varied.min() >= 0
    assert varied.max() <= 1
    assert len({row.numpy().tobytes() for row in varied}) > 1
    assert not torch.equal(varied, AUGMENTATIONS[name](pictures))


@pytest.mark.parametrize("channels", [1, 3])
def test_settings_that_ask_for_nothing_return_the_input_exactly(channels):
    pictures = torch.rand(8, channels, 12, 10)
    for same in (
        augment.flip(pictures, 0.0),
        augment.shift(pictures, 0),
        augment.shift(pictures, 0, reflect=False),
        augment.resized_crop(pictures, (1, 1), (1, 1)),
        augment.jitter(pictures, probability=0, gray_probability=0),
        augment.jitter(pictures, 0, 0, 0, 0, probability=1, gray_probability=0),
        augment.cutout(pictures, 0.0),
        augment.randaugment_and_cutout(pictures, n_operations=0, cutout_fraction=0.0),
    ):
        assert torch.equal(same, pictures)


def test_flip_mirrors_about_half_of_the_rows():
    pictures = repeated(400, size=4)
    flipped = augment.flip(pictures)
    mirrored = (flipped == pictures.flip(3)).flatten(1).all(1)
    assert ((flipped == pictures).flatten(1).all(1) ^ mirrored).all()
    assert 140 < mirrored.sum() < 260
    assert torch.equal(augment.flip(pictures, 1.0), pictures.flip(3))


@pytest.mark.parametrize(("reflect", "mode"), [(True, "reflect"), (False, "replicate")])
def test_shift_is_a_crop_of_the_padded_picture(reflect, mode):
    picture = torch.rand(1, 3, 6, 9)
    padded = torch.nn.functional.pad(picture, (2, 2, 2, 2), mode=mode)
    crops = {padded[0, :, y : y + 6, x : x + 9].numpy().tobytes() for y in range(5) for x in range(5)}
    shifted = {row.contiguous().numpy().tobytes() for row in augment.shift(picture.expand(500, -1, -1, -1), 2, reflect)}
    assert shifted == crops


def test_shift_further_than_the_picture_still_gives_pixels_of_it():
    pictures = torch.rand(50, 1, 2, 2)
    shifted = augment.shift(pictures, 9)
    assert all(set(b.flatten().tolist()) <= set(a.flatten().tolist()) for a, b in zip(pictures, shifted, strict=True))


def test_resized_crop_keeps_to_the_area_asked_for():
    size = 32
    ramp = torch.arange(size).float().div(size).expand(2, size, size).clone()
    ramp[1] = ramp[0].T
    picture = torch.cat([ramp, torch.zeros(1, size, size)])[None].expand(300, -1, -1, -1)
    crop = augment.resized_crop(picture, (0.25, 0.5), (1, 1))
    # A cut of side s shows a share s of each ramp (less about one pixel, over its 31 steps).
    width = (crop[:, 0, 16, -1] - crop[:, 0, 16, 0]) * size / (size - 1)
    height = (crop[:, 1, -1, 16] - crop[:, 1, 0, 16]) * size / (size - 1)
    assert torch.allclose(width, height, atol=0.03)
    assert 0.45 < width.min() < 0.53
    assert 0.66 < width.max() < 0.74
    flipped = augment.resized_crop(picture, flip_probability=1.0)
    assert (flipped[:, 0, 16, 0] > flipped[:, 0, 16, -1]).all()


def test_jitter_grays_its_share_of_rows():
    varied = augment.jitter(repeated(400, size=4), probability=0.0, gray_probability=0.25)
    gray = (varied - varied.mean(1, keepdim=True)).abs().flatten(1).amax(1) < 1e-5
    assert 60 < gray.sum() < 145


def test_randaugment_uses_every_operation_and_changes_nothing_too_often():
    pictures = repeated(2000, size=8)
    same = (augment.randaugment(pictures, n_operations=1) == pictures).flatten(1).all(1).float().mean()
    assert 0.03 < same < 0.2  # one operation of fourteen is to do nothing
    assert augment.OPERATIONS["nothing"] == (0, 0, 0)


def test_no_degrees_no_rotation(monkeypatch):
    only = {name: (low, high, neutral) for name, (low, high, neutral) in augment.OPERATIONS.items()}
    still = torch.tensor([only[n] if n == "degrees" else (v[2], v[2], v[2]) for n, v in only.items()]).T
    monkeypatch.setattr(augment, "_RANGES", still)
    pictures = repeated(200)
    assert torch.equal(augment.randaugment(pictures, 14, max_degrees=0.0), pictures)
    assert not torch.equal(augment.randaugment(pictures, 14, max_degrees=10.0), pictures)


def test_cutout_covers_at_most_its_square():
    covered = augment.cutout(torch.zeros(300, 3, 16, 16), 0.5) == 0.5
    area = covered[:, 0].sum((1, 2))
    assert area.max() == 64
    assert area.min() >= 16
    assert torch.equal(covered[:, 0], covered[:, 2])


def test_the_same_seed_gives_the_same_batch():
    pictures = repeated()
    first, second = (torch.manual_seed(3) and augment.randaugment_and_cutout(pictures) for _ in range(2))
    assert torch.equal(first, second)


def test_autocast_does_not_round_pictures():
    pictures = repeated(size=8)
    torch.manual_seed(3)
    plain = augment.randaugment_and_cutout(augment.jitter(augment.resized_crop(pictures)))
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        inside = augment.randaugment_and_cutout(augment.jitter(augment.resized_crop(pictures)))
    assert torch.equal(plain, inside)


def test_nothing_is_read_back_from_the_device():
    """The meta device has shapes and no values: whatever would wait for a value fails there."""
    pictures = torch.empty(8, 3, 16, 16, device="meta")
    for vary in AUGMENTATIONS.values():
        assert vary(pictures).shape == pictures.shape


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_batch_without_rows_stays_so(name):
    assert AUGMENTATIONS[name](torch.empty(0, 3, 16, 16)).shape == (0, 3, 16, 16)


@pytest.mark.filterwarnings("ignore")
def test_all_of_it_is_one_graph_for_the_compiler():
    def chain(images: torch.Tensor) -> torch.Tensor:
        images = augment.shift(augment.flip(images), 2)
        return augment.randaugment_and_cutout(augment.jitter(augment.resized_crop(images)))

    compiled = torch.compile(chain, backend="eager", fullgraph=True)
    pictures = repeated(8)
    torch.manual_seed(3)
    expected = chain(pictures)
    torch.manual_seed(3)
    assert torch.allclose(compiled(pictures), expected, atol=1e-6)
