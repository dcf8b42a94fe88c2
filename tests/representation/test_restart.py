from dataclasses import replace

import numpy as np
import pytest

import labeldp as ldp
from labeldp.data import Images
from labeldp.learn import Training
from labeldp.learn.encoded import split_encoder
from labeldp.representation.contrastive import SimCLR
from labeldp.representation.restart import train_two_encoders, train_with_restart


def test_the_second_encoder_goes_on_from_the_first_which_stays(digits, cnn):
    settings = Training(epochs=2, batch_size=256, optimizer="adamw", learning_rate=3e-3, device="cpu")
    method, begun = SimCLR(cnn, settings), []
    first, second = split_encoder(train_with_restart(method, digits.images, 1))
    assert first.digest() == method.fit(digits.images).digest()
    assert first.digest() != second.digest()
    still = Training(epochs=2, batch_size=256, learning_rate=1e-12, weight_decay=0.0, device="cpu")
    before, after = split_encoder(train_with_restart(SimCLR(cnn, still), digits.images, 1))
    for (name, one), two in zip(before.network.named_parameters(), after.network.parameters(), strict=True):
        begun.append(name)
        assert np.allclose(one.detach(), two.detach(), atol=1e-5)  # it went nowhere from there
    assert begun


@pytest.mark.parametrize("place", ["a file", "a folder"])
def test_the_two_have_checkpoints_of_their_own(digits, cnn, tmp_path, place):
    checkpoint = tmp_path / "encoder.pt" if place == "a file" else tmp_path
    method = SimCLR(cnn, Training(epochs=1, batch_size=256, device="cpu", checkpoint=checkpoint))
    whole = train_with_restart(method, digits.images, 1)
    first, second = split_encoder(whole)
    assert first.digest() != second.digest()
    assert len(list(tmp_path.iterdir())) == 2
    assert train_with_restart(method, digits.images, 1).digest() == whole.digest()


def test_a_training_goes_on_with_the_pictures_that_it_began_with(digits, cnn, tmp_path):
    one = replace(SimCLR(cnn), training=Training(epochs=1, batch_size=256, device="cpu", checkpoint=tmp_path))
    pixels = (digits.pixels.reshape(-1, 1, 8, 8) * 15.9).astype(np.uint8)
    other = Images(pixels[::-1].copy(), flip=False)
    fresh = replace(one, training=replace(one.training, checkpoint=None)).fit(other)
    one.fit(digits.images)
    assert one.fit(other).digest() == fresh.digest()
    assert one.fit(Images(pixels, flip=True)).digest() != one.fit(digits.images).digest()


@pytest.mark.parametrize(
    ("rows", "height", "gpu", "asked", "size", "epochs"),
    [
        (50_000, 4, True, None, None, (240, 300)),
        (40, 32, True, None, 24, (400, 500)),
        (40, 32, False, None, None, (60, 75)),
        (50_000, 4, False, None, None, (24, 30)),
        (40, 32, False, 1, None, (1, 1)),
    ],
)
def test_two_encoders_are_trained_as_those_of_cifar10(rows, height, gpu, asked, size, epochs, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    found = []
    monkeypatch.setattr("labeldp.representation.restart.train_with_restart", lambda *args: found.append(args))
    images = Images(np.zeros((rows, 1, height, height), np.uint8), device="cpu")
    train_two_encoders(images, epochs=asked)
    train_two_encoders(images, "cnn", asked, compile=False, learning_rate=0.1)
    (method, _, again), (other, *_) = found
    assert method.backbone == ("resnet18" if gpu else "cnn")
    assert (method.view_size, method.training.epochs, again) == (size, *epochs)
    assert (method.training.compile, method.training.learning_rate, method.training.batch_size) == (gpu, 0.5, 256)
    assert (other.view_size, other.training.compile, other.training.learning_rate) == (None, False, 0.1)


@pytest.mark.parametrize(
    ("shape", "message"), [((0, 1, 8, 8), "give two at least"), ((9, 1, 3, 3), "cannot take rows of 1 x 3 x 3")]
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_pictures_that_cannot_be_encoded_are_refused(shape, message):
    training = {"epochs": 1, "device": "cpu"}
    with pytest.raises(ldp.InputError, match=message):
        train_two_encoders(Images(np.zeros(shape, np.uint8)), "cnn", **training)
