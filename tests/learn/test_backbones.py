from functools import partial

import pytest
import torch

import labeldp as ldp
from labeldp.learn.backbone_names import backbones_for, is_backbone
from labeldp.learn.backbones import BACKBONES, EnsembleNetwork, build, rebuild

SHAPES = {"mlp": (7,), "linear": (7,), "mf": (5, 7), "ncf": (5, 7)}


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_scores_classes_and_is_rebuilt_by_its_recipe(name):
    torch.manual_seed(0)
    shape = SHAPES.get(name, (3, 16, 16))
    network = build(name, shape, 4)
    x = torch.tensor([[0, 6], [4, 1]]) if len(shape) == 2 else torch.rand(2, *shape)
    assert network(x).shape == (2, 4)
    assert network.embed(x).shape == (2, network.width)
    again = rebuild(network.config)
    again.load_state_dict(network.state_dict())
    assert torch.equal(network.eval()(x), again.eval()(x))


def test_the_names_known_without_torch_are_those_of_all_backbones():
    assert {name for axes in (1, 2, 3) for name in backbones_for(axes)} == set(BACKBONES)
    assert all(is_backbone(name) for name in BACKBONES)
    assert not is_backbone("trees")


@pytest.mark.parametrize(
    ("make", "millions"),
    [
        (partial(build, "resnet18"), 11.17),
        (partial(build, "wrn28", k=2), 1.47),
        (partial(build, "wrn28", k=4), 5.85),
        (partial(build, "vgg16"), 14.72),
    ],
)
def test_sizes_are_those_of_the_literature(make, millions):
    network = make((3, 32, 32), 10)
    assert sum(p.numel() for p in network.parameters()) / 1e6 == pytest.approx(millions, abs=0.02)


def test_small_pictures_pass_through_every_network():
    for name in ("resnet18", "wrn28", "vgg16", "cnn"):
        assert build(name, (1, 8, 8), 10)(torch.rand(2, 1, 8, 8)).shape == (2, 10)


def test_input_is_normalised():
    network = build("linear", (2,), 2)
    network.set_normalization(torch.tensor([1.0, -1.0]), torch.tensor([2.0, 0.0]))
    assert torch.allclose(network.embed(torch.tensor([[3.0, -1.0]])), torch.tensor([[1.0, 0.0]]))


def test_an_average_averages_probabilities():
    a, b = build("linear", (2,), 3), build("linear", (2,), 3)
    x = torch.rand(4, 2)
    expected = (torch.softmax(a(x), 1) + torch.softmax(b(x), 1)) / 2
    assert torch.allclose(torch.softmax(EnsembleNetwork([a, b])(x), 1), expected, atol=1e-6)


def test_bad_names_and_shapes():
    with pytest.raises(ldp.InputError, match="no backbone 'resnet'"):
        build("resnet", (3, 32, 32), 10)
    with pytest.raises(ldp.InputError, match="needs images"):
        build("resnet18", (7,), 10)


@pytest.mark.parametrize("name", ["mlp", "linear"])
def test_huge_numbers_give_finite_scores(name):
    torch.manual_seed(0)
    rows = torch.tensor([[-3.4e38, 0.0], [3.4e38, 1.0], [3.4e38, 2.0]])
    network = build(name, (2,), 3)
    network.set_normalization(rows.double().mean(0).float(), rows.double().std(0, unbiased=False).float())
    assert network.eval()(rows).isfinite().all()
