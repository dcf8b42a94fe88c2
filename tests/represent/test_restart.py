from dataclasses import replace

import numpy as np

from labeldp.learn import Training
from labeldp.learn.encoded import members
from labeldp.represent.contrastive import SimCLR
from labeldp.represent.restart import with_restart


def test_the_second_encoder_goes_on_from_the_first_which_stays(digits, cnn, tmp_path):
    settings = Training(epochs=2, batch=256, optimizer="adamw", rate=3e-3, device="cpu")
    method = SimCLR(cnn, settings)
    first, second = members(with_restart(method, digits.images, 1))
    assert first.digest() == method.fit(digits.images).digest()
    alone = replace(method, training=replace(settings, epochs=1)).fit(digits.images)
    assert len({first.digest(), second.digest(), alone.digest()}) == 3


def test_it_resumes_after_either_training(digits, cnn, tmp_path, monkeypatch):
    settings = Training(epochs=1, batch=256, device="cpu", checkpoint=tmp_path / "encoder.pt")
    method, images = SimCLR(cnn, settings), digits.images
    whole = with_restart(method, images, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder-first.pt", "encoder.pt"]
    (tmp_path / "encoder.pt").unlink()
    again = with_restart(method, images, 2)
    assert np.array_equal(again.embed(images), whole.embed(images))
