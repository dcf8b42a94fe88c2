import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import labeldp as ldp
from labeldp.data import Embeddings, Images
from labeldp.learn import SemiGAN, Training
from labeldp.learn.backbones import EnsembleNetwork, build
from labeldp.learn.semigan import (
    _GAN,
    _Generator,
    _input_range,
    contradiction_mask,
    discriminate,
    realness_loss,
    select_trusted_rows,
)

SMALL = partial(build, "mlp", width=32)
SHORT = Training(epochs=4, batch_size=500, optimizer="adamw", learning_rate=3e-3, device="cpu")
PLUS_PLUS = {"n_discriminators": 2, "plus": True, "remove_fraction": 0.3, "ramp_epochs": 2}


def some(digits, count, seed=0, epsilon=2.9):
    """Labels of some digits, about a third of them wrong."""
    rows = np.random.default_rng(seed).permutation(1400)[:count]
    return digits.release(ldp.RandomizedResponse(epsilon), rows=rows, seed=seed)


def weights(model):
    return torch.cat([value.flatten().double() for value in model.network.state_dict().values()])


def test_the_loss_is_that_of_a_softmax_over_one_class_more():
    real, fake = torch.randn(7, 4), 3 * torch.randn(5, 4)
    probabilities = [torch.softmax(torch.cat([rows, torch.zeros(len(rows), 1)], dim=1), dim=1) for rows in (real, fake)]
    by_hand = -(1 - probabilities[0][:, 4]).log().mean() - probabilities[1][:, 4].log().mean()
    assert realness_loss(real, fake) == pytest.approx(float(by_hand), rel=1e-5)
    assert realness_loss(real + 500, fake - 500).isfinite()


def a_game():
    torch.manual_seed(0)
    network = build("mlp", (6,), 3, width=8)
    features = Embeddings(np.random.default_rng(0).random((20, 6)))
    generator, codes = _Generator(features, latent_dim=5), torch.rand(9, 5)
    return network, generator, codes, torch.rand(7, 6), torch.rand(8, 6)


def gradients(loss, module):
    found = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True, retain_graph=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(found, module.parameters(), strict=True)]


def test_each_loss_teaches_its_own_player_alone():
    network, generator, codes, known, other = a_game()
    output = discriminate(network, known, other, generator(codes))
    assert all(not g.any() for g in gradients(output.generator_loss, network))
    assert all(not g.any() for g in gradients(output.discriminator_loss, generator))
    assert all(not g.any() for g in gradients(output.labeled_logits.sum(), generator))
    assert any(g.any() for g in gradients(output.generator_loss, generator))
    assert any(g.any() for g in gradients(output.discriminator_loss, network))


def test_the_gradients_are_those_of_two_separate_steps():
    network, generator, codes, known, other = a_game()
    plain, expected = copy.deepcopy(network), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    output = discriminate(network, known, other, generator(codes))
    joint = (
        nn.functional.cross_entropy(output.labeled_logits, expected) + output.discriminator_loss + output.generator_loss
    )

    logits = plain(torch.cat([known, other, generator(codes).detach()]))
    probabilities = torch.softmax(torch.cat([logits, torch.zeros(24, 1)], dim=1), dim=1)
    alone = -(torch.softmax(logits[:7], dim=1)[range(7), expected]).log().mean()
    alone = alone - (1 - probabilities[7:15, 3]).log().mean() - probabilities[15:, 3].log().mean()
    for ours, theirs in zip(gradients(joint, network), gradients(alone, plain), strict=True):
        torch.testing.assert_close(ours, theirs)
    for (name, ours), (_, theirs) in zip(network.named_buffers(), plain.named_buffers(), strict=True):
        assert torch.equal(ours, theirs), name  # the generator's lesson leaves no statistics behind

    encoded = plain.embed(torch.cat([other, generator(codes)]))
    apart = encoded[:8].mean(0) - encoded[8:].mean(0)
    for ours, theirs in zip(gradients(joint, generator), gradients((apart**2).sum(), generator), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_contradicted_rows_by_a_slow_loop():
    first, second, labels = torch.randn(200, 3), torch.randn(200, 3), torch.randint(3, (200,))
    slow = []
    for a, b, label in zip(first.tolist(), second.tolist(), labels.tolist(), strict=True):
        one, two = a.index(max(a)), b.index(max(b))
        slow.append(one != two and label not in (one, two))
    assert contradiction_mask(first, second, labels).tolist() == slow
    assert 20 < sum(slow) < 80


def test_counts_by_a_slow_loop():
    game = _GAN([], nn.Identity(), 4)
    table = dict.fromkeys(range(4), 0.0)
    for hits in ([0, 0, 2], [2], [], [1, 1, 2]):  # a row that is met twice in an epoch counts once
        game.epoch_marks.index_add_(0, torch.tensor(hits, dtype=torch.long), torch.ones(len(hits)))
        game.end_epoch(0.9)
        table = {row: 0.9 * count + (row in hits) for row, count in table.items()}
    assert game.counts.tolist() == pytest.approx(list(table.values()))
    assert table[2] > table[1] > table[0] > table[3] == 0


def test_the_most_doubted_labels_are_removed(digits):
    release = digits.release(ldp.RandomizedResponse(2.0), rows=np.arange(10))
    counts = np.zeros(1400)
    counts[:10] = [0, 3, 1, 0, 2, 0, 5, 0, 0, 0]
    counts[50] = 9  # it has no label, so it has none to lose
    assert np.flatnonzero(~select_trusted_rows(release, counts, 0.2)).tolist() == [1, 6]
    assert np.flatnonzero(~select_trusted_rows(release, counts, 0.39)).tolist() == [1, 4, 6]
    assert np.flatnonzero(~select_trusted_rows(release, counts, 0.9)).tolist() == [
        1,
        2,
        4,
        6,
    ]  # nobody doubts the others
    assert release.keep(select_trusted_rows(release, counts, 0.2)).guarantee == release.guarantee


def test_generated_rows_lie_where_the_features_lie(digits):
    matrix = np.random.default_rng(0).normal(size=(50, 3)) * [1, 10, 0]
    for features, low, high in (
        (Embeddings(matrix), matrix.min(0), matrix.max(0)),
        (digits.images, np.zeros(1), np.full(1, 254 / 255)),
    ):
        assert [end.flatten().tolist() for end in _input_range(features)] == [pytest.approx(low), pytest.approx(high)]
        generator = _Generator(features, 5)
        for layer in generator.layers:
            if isinstance(layer, nn.Linear):
                layer.weight.data *= 100
        rows = generator(torch.rand(20, 5)).detach()
        assert rows.shape == (20, *features.shape)
        assert (rows >= generator.low).all()
        assert (rows <= generator.high).all()
        assert (rows.std(0) > 0).any()


@pytest.mark.parametrize("settings", [{}, PLUS_PLUS], ids=["plain", "plus-plus"])
def test_a_seed_says_it_all(digits, settings):
    release = some(digits, 300)
    short = replace(SHORT, epochs=2)
    one, same = (SemiGAN(SMALL, short, **settings).fit(digits.features, release) for _ in range(2))
    other = SemiGAN(SMALL, replace(short, seed=1), **settings).fit(digits.features, release)
    assert torch.equal(weights(one), weights(same))
    assert not torch.equal(weights(one), weights(other))
    assert isinstance(one.network, EnsembleNetwork) == bool(settings)
    assert one.guarantee == release.guarantee


@pytest.mark.parametrize("stop", [2, 6], ids=["while counting", "after"])
@pytest.mark.parametrize("folder", [True, False])
def test_a_run_that_was_stopped_and_resumed_gives_the_same_weights(digits, tmp_path, stop, folder):
    release = some(digits, 300)
    whole = SemiGAN(SMALL, SHORT, **PLUS_PLUS).fit(digits.features, release)
    reported = []

    def stop_it(epoch, loss):
        reported.append(epoch)
        if len(reported) == stop:
            raise KeyboardInterrupt

    retained = replace(SHORT, checkpoint=tmp_path if folder else tmp_path / "c.pt")
    with pytest.raises(KeyboardInterrupt):
        SemiGAN(SMALL, replace(retained, progress=stop_it), **PLUS_PLUS).fit(digits.features, release)
    stop = 99
    resumed = SemiGAN(SMALL, replace(retained, progress=stop_it), **PLUS_PLUS).fit(digits.features, release)
    assert reported == [1, 2, 3, 4, 1, 2, 3, 4]
    assert torch.equal(weights(whole), weights(resumed))


def test_plus_plus_is_plus_on_what_plus_trusts(digits):
    release, settings = some(digits, 300), replace(SHORT, epochs=3, ema_decay=0.9)
    plus = SemiGAN(SMALL, settings, **PLUS_PLUS | {"remove_fraction": 0.0})
    _, counts = plus.fit_and_count_contradictions(digits.features, release)
    assert not counts[release.labels() < 0].any()
    retained = release.keep(select_trusted_rows(release, counts, 0.3))
    assert 0 < (release.labels() >= 0).sum() - (retained.labels() >= 0).sum() <= 90
    by_hand = plus.fit(digits.features, retained)
    assert torch.equal(weights(by_hand), weights(SemiGAN(SMALL, settings, **PLUS_PLUS).fit(digits.features, release)))


def test_images_and_labels_for_all_rows():
    generator = np.random.default_rng(0)
    images = Images(generator.integers(0, 256, (60, 3, 8, 8), np.uint8))
    vault = ldp.Vault(generator.integers(0, 3, 60), ldp.LabelSpace([0, 1, 2]), ldp.Budget(1.0))
    learner = SemiGAN(
        partial(build, "cnn", width=4), replace(SHORT, epochs=2, batch_size=20), n_discriminators=2, plus=True
    )
    model = learner.fit(images, vault.release(ldp.RandomizedResponse(1.0)))
    probabilities = model.predict_proba(images)
    assert probabilities.shape == (60, 3)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)


def test_what_makes_no_sense_is_refused(digits):
    for wrong in (
        {"plus": True},
        {"remove_fraction": 0.3},
        {"n_discriminators": 3},
        {"n_discriminators": 2, "remove_fraction": 1.0},
    ):
        with pytest.raises(ldp.InputError):
            SemiGAN(**wrong)
    foreign = SemiGAN(lambda shape, classes: nn.Linear(*shape, classes), SHORT)
    with pytest.raises(ldp.InputError, match="encodings"):
        foreign.fit(digits.features, some(digits, 50))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, where it goes on after a break
def test_compiling_changes_no_result_and_happens_once(digits, monkeypatch):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter, compiler = CompileCounter(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda loss, **_: compiler(loss, backend=counter))
    release, results = some(digits, 300), []
    for settings in (SHORT, replace(SHORT, compile=True)):
        learner = SemiGAN(SMALL, settings, n_discriminators=2, plus=True, ramp_epochs=2)
        results.append(weights(learner.fit(digits.features, release)))
    assert torch.equal(*results)
    assert counter.frame_count == 1


def test_a_student_that_removes_labels_resists_noise(digits):
    plain, ours = [], []
    for seed in range(2):
        release = some(digits, 500, seed)
        training = replace(SHORT, epochs=14, batch_size=150, learning_rate=8e-3, seed=seed)
        for found, settings in ((plain, {}), (ours, PLUS_PLUS | {"noise_rate": 0.3})):
            learner = SemiGAN(partial(build, "mlp", width=128), training, **settings)
            found.append(digits.accuracy(learner.fit(digits.features, release)))
    assert np.mean(ours) > np.mean(plain) + 0.03
