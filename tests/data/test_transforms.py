import pytest
import torch

from labeldp.data import transforms


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


def dot(height: int, width: int, y: int, x: int, rows: int = 1) -> torch.Tensor:
    image = torch.zeros(rows, 1, height, width)
    image[:, :, y, x] = 1
    return image


def maps(size: tuple[int, int], rows: int = 1, **settings: float) -> torch.Tensor:
    names = {"degrees": 0.0, "shear_right": 0.0, "shear_down": 0.0, "right": 0.0, "down": 0.0, "zoom": 1.0} | settings
    return transforms.make_affine_maps(*(torch.full((rows,), value) for value in names.values()), size)


def brightest(image: torch.Tensor) -> tuple[int, int]:
    return divmod(int(image[0, 0].argmax()), image.shape[3])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"right": 3 / 16}, (2, 8)),
        ({"down": 0.25}, (4, 5)),
        ({"degrees": 180.0}, (5, 10)),
        ({"right": 1 / 16, "down": -1 / 8}, (1, 6)),
        ({"degrees": 90.0}, (6, 6)),
    ],
)
def test_a_bright_pixel_lands_where_it_should_on_a_picture_that_is_not_square(settings, expected):
    warped = transforms.warp(dot(8, 16, 2, 5), maps((8, 16), **settings))
    assert brightest(warped) == expected
    assert warped.sum() == pytest.approx(1, abs=1e-4)


def test_a_quarter_turn_is_anticlockwise_and_exact():
    pictures = torch.rand(3, 3, 9, 9)
    turned = transforms.warp(pictures, maps((9, 9), 3, degrees=90.0))
    assert torch.allclose(turned, pictures.rot90(1, (2, 3)), atol=1e-5)


def test_zoom_spreads_from_the_middle():
    warped = transforms.warp(dot(9, 9, 4, 6), maps((9, 9), zoom=2.0))
    assert brightest(warped) == (4, 8)


def test_shear_moves_lines_in_proportion_to_their_height():
    # y counts downwards from the middle: line 0 is 4 above it and moves 2 to the left, line 8 moves 2 to the right.
    above, below = (transforms.warp(dot(9, 9, y, 4), maps((9, 9), shear_right=0.5)) for y in (0, 8))
    assert brightest(above) == (0, 2)
    assert brightest(below) == (8, 6)
    assert brightest(transforms.warp(dot(9, 9, 4, 8), maps((9, 9), shear_down=0.5))) == (6, 8)


def test_each_row_has_its_own_map():
    moves = transforms.make_affine_maps(*torch.zeros(3, 2), values(0.0, 0.25), torch.zeros(2), torch.ones(2), (8, 8))
    warped = transforms.warp(dot(8, 8, 4, 4, rows=2), moves)
    assert torch.equal(warped[0], dot(8, 8, 4, 4)[0])
    assert brightest(warped[1:]) == (4, 6)


def test_neutral_parameters_return_the_input_exactly():
    torch.manual_seed(0)
    one, zero = torch.ones(4), torch.zeros(4)
    for channels in (1, 3):
        pictures = torch.rand(4, channels, 7, 5)
        for same in (
            transforms.warp(pictures, maps((7, 5), 4)),
            transforms.adjust_color(pictures, one, one, one, zero),
            transforms.sharpen(pictures, one),
            transforms.solarize(pictures, one),
            transforms.posterize(pictures, 8 * one),
            transforms.stretch_or_equalize(pictures, zero > 1, zero > 1),
            transforms.cover_square(pictures, zero, zero, zero),
        ):
            assert torch.equal(same, pictures)


def test_colors_follow_their_definitions():
    pictures = torch.rand(1, 3, 4, 4) * 0.5 + 0.1
    one, zero = values(1.0), values(0.0)
    luma = (pictures * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)
    brighter = transforms.adjust_color(pictures, values(1.5), one, one, zero)
    assert torch.allclose(brighter, pictures * 1.5)
    flatter = transforms.adjust_color(pictures, one, values(0.25), one, zero)
    assert torch.allclose(flatter, luma.mean() + 0.25 * (pictures - luma.mean()), atol=1e-6)
    gray = transforms.adjust_color(pictures, one, one, zero, zero)
    assert torch.allclose(gray, luma.expand(-1, 3, -1, -1), atol=1e-6)


def test_hue_turns_about_the_gray_axis():
    pictures = 0.5 + 0.05 * torch.rand(1, 3, 4, 4)
    one = values(1.0)
    turned = pictures
    for _ in range(3):
        turned = transforms.adjust_color(turned, one, one, one, values(1 / 3))
    assert torch.allclose(turned, pictures, atol=1e-5)
    once = transforms.adjust_color(pictures, one, one, one, values(1 / 3))
    weights = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
    assert torch.allclose((once * weights).sum(1), (pictures * weights).sum(1), atol=1e-5)
    assert not torch.allclose(once, pictures, atol=1e-3)


def test_one_channel_has_brightness_and_contrast_only():
    pictures = torch.rand(1, 1, 4, 4) * 0.5
    varied = transforms.adjust_color(pictures, values(1.5), values(1.0), values(0.0), values(0.3))
    assert torch.allclose(varied, pictures * 1.5)


def test_solarize_and_posterize_treat_each_row_by_itself():
    pictures = (torch.arange(256) / 255).view(1, 1, 16, 16).repeat(2, 1, 1, 1)
    solar = transforms.solarize(pictures, values(0.5, 1.0))
    assert torch.equal(solar[1], pictures[1])
    assert solar[0].flatten()[[100, 200]].tolist() == pytest.approx([100 / 255, 55 / 255])
    poster = (transforms.posterize(pictures, values(4.0, 7.9)) * 255).round().int().flatten(1)
    assert torch.equal(poster[0], torch.arange(256, dtype=torch.int32) // 16 * 16)
    assert torch.equal(poster[1], torch.arange(256, dtype=torch.int32) // 2 * 2)


def test_stretch_fills_the_range_and_equalize_makes_values_even():
    torch.manual_seed(0)
    pictures = (0.4 + 0.05 * torch.randn(3, 3, 32, 32)).clamp(0, 1)
    pictures[2] = 0.3
    spread = transforms.stretch_or_equalize(
        pictures, torch.tensor([True, False, True]), torch.tensor([False, True, False])
    )
    assert spread[:2].amin() == 0
    assert spread[:2].amax() == 1
    assert spread[1].std() == pytest.approx(12**-0.5, abs=0.02)  # the deviation of a uniform law
    assert torch.equal(spread[2], pictures[2])  # nothing to stretch


def test_sharpen_leaves_flat_pictures_and_blurs_dots():
    flat = torch.full((1, 3, 6, 6), 0.4)
    assert torch.allclose(transforms.sharpen(flat, values(1.9)), flat)
    blurred = transforms.sharpen(dot(5, 5, 2, 2), values(0.0))
    assert torch.allclose(blurred[0, 0, 1:4, 1:4], torch.full((3, 3), 1 / 9))
    assert blurred.sum() == pytest.approx(1)


def test_cover_covers_a_square_cut_off_at_the_edge():
    covered = transforms.cover_square(torch.zeros(2, 3, 8, 8), values(4.0, 0.0), values(4.0, 8.0), values(4.0, 4.0))
    assert torch.equal(covered[0, 0] == 0.5, torch.nn.functional.pad(torch.ones(4, 4), (2, 2, 2, 2)).bool())
    assert covered[1, 2].sum() == 0.5 * 4
    assert covered[1, 2, 0, 7] == 0.5
