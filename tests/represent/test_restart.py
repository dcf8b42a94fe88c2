import numpy as np
import pytest

from labeldp.learn import Training
from labeldp.learn.encoded import members
from labeldp.represent.contrastive import SimCLR
from labeldp.represent.restart import with_restart


def test_the_second_encoder_goes_on_from_the_first_which_stays(digits, cnn):
    settings = Training(epochs=2, batch=256, optimizer="adamw", rate=3e-3, device="cpu")
    method, begun = SimCLR(cnn, settings), []
    first, second = members(with_restart(method, digits.images, 1))
    assert first.digest() == method.fit(digits.images).digest()
    assert first.digest() != second.digest()
    still = Training(epochs=2, batch=256, rate=1e-12, decay=0.0, device="cpu")
    before, after = members(with_restart(SimCLR(cnn, still), digits.images, 1))
    for (name, one), two in zip(before.network.named_parameters(), after.network.parameters(), strict=True):
        begun.append(name)
        assert np.allclose(one.detach(), two.detach(), atol=1e-5)  # it went nowhere from there
    assert begun


@pytest.mark.parametrize("place", ["a file", "a folder"])
def test_the_two_have_checkpoints_of_their_own(digits, cnn, tmp_path, place):
    checkpoint = tmp_path / "encoder.pt" if place == "a file" else tmp_path
    method = SimCLR(cnn, Training(epochs=1, batch=256, device="cpu", checkpoint=checkpoint))
    whole = with_restart(method, digits.images, 1)
    first, second = members(whole)
    assert first.digest() != second.digest()
    assert len(list(tmp_path.iterdir())) == 2
    assert with_restart(method, digits.images, 1).digest() == whole.digest()
