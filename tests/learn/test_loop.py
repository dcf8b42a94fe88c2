import copy
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import labeldp as ldp
import labeldp.learn
from labeldp.learn import CrossFit, SoftMatch, Supervised
from labeldp.learn.loop import Training, train_network


def problem(seed=0):
    """A small network with dropout and batch normalisation, so that randomness and buffers matter."""
    torch.manual_seed(seed)
    x, y = torch.randn(96, 5), torch.randint(3, (96,))
    network = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    return network, 96, lambda rows: nn.functional.cross_entropy(network(x[rows]), y[rows])


def weights(network):
    return torch.cat([value.flatten().double() for value in network.state_dict().values()])


SETTINGS = Training(epochs=6, batch_size=32, learning_rate=0.05, ema_decay=0.9, device="cpu")


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_run_that_was_stopped_and_resumed_gives_the_same_weights(tmp_path, optimizer):
    settings = replace(SETTINGS, optimizer=optimizer)
    network, rows, loss = problem()
    whole = weights(train_network(network, rows, loss, settings))

    class Stop(Exception):
        pass

    def stop_at_four(epoch):
        if epoch == 4:
            raise Stop

    network, rows, loss = problem()
    settings = replace(settings, checkpoint=tmp_path / "c.pt")
    with pytest.raises(Stop):
        train_network(network, rows, loss, settings, begin_epoch=stop_at_four)
    network, rows, loss = problem()
    resumed = weights(train_network(network, rows, loss, settings))
    assert torch.equal(whole, resumed)


def test_the_same_seed_gives_the_same_weights_and_another_one_does_not():
    results = []
    for seed in (1, 1, 2):
        network, rows, loss = problem()
        results.append(weights(train_network(network, rows, loss, replace(SETTINGS, seed=seed))))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_a_checkpoint_of_another_model_or_a_damaged_one_is_refused(tmp_path):
    network, rows, loss = problem()
    settings = replace(SETTINGS, checkpoint=tmp_path / "c.pt")
    train_network(network, rows, loss, settings)
    with pytest.raises(ldp.InputError, match="another model, release or training"):
        train_network(nn.Linear(2, 2), rows, loss, settings)
    with pytest.raises(ldp.InputError, match="another model, release or training"):
        train_network(network, rows, loss, replace(settings, learning_rate=0.01))
    (tmp_path / "c.pt").write_bytes(b"nonsense")
    with pytest.raises(ldp.InputError, match="damaged"):
        train_network(network, rows, loss, settings)


def test_the_rate_rises_and_then_follows_a_cosine():
    settings = Training(learning_rate=1.0, warmup_fraction=0.2)
    assert settings.rate_at(0.1) == pytest.approx(0.5)
    assert settings.rate_at(0.2) == pytest.approx(1.0)
    assert settings.rate_at(0.6) == pytest.approx(0.5)
    assert settings.rate_at(1.0) == pytest.approx(0.0)
    assert replace(settings, final_rate_fraction=0.1).rate_at(0.6) == pytest.approx(0.55)
    assert replace(settings, final_rate_fraction=0.1).rate_at(1.0) == pytest.approx(0.1)


def test_what_begins_a_step_hears_how_far_the_training_is():
    network, rows, loss = problem()
    observed = []
    train_network(network, rows, loss, replace(SETTINGS, epochs=2, batch_size=48), begin_step=observed.append)
    assert observed == [0, 0.25, 0.5, 0.75]


def test_the_average_is_the_average():
    network = nn.Linear(1, 1, bias=False)
    nn.init.constant_(network.weight, 0.0)
    history = []

    def loss(rows):
        history.append(float(network.weight.detach()))
        return (network.weight - 1).square().sum()

    settings = Training(
        epochs=3,
        batch_size=2,
        learning_rate=0.1,
        momentum=0.0,
        weight_decay=0.0,
        ema_decay=0.5,
        device="cpu",
        warmup_fraction=0.0,
    )
    settings = replace(settings, optimizer="adamw")
    averaged = train_network(network, 4, loss, settings)
    steps = [*history[1:], float(network.weight.detach())]
    expected = 0.0
    for step, value in enumerate(steps):
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * value
    assert float(averaged.weight) == pytest.approx(expected, rel=1e-5)


def test_every_row_is_seen_once_an_epoch():
    network, seen = nn.Linear(1, 1), []

    def loss(rows):
        seen.append(rows.clone())
        return network.weight.sum()

    train_network(network, 10, loss, Training(epochs=2, batch_size=5, device="cpu"))
    first, second = torch.cat(seen[:2]), torch.cat(seen[2:])
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(10))
    assert first.tolist() != second.tolist()


def test_begin_epoch_looks_without_touching():
    network, rows, loss = problem()
    modes = []
    before = copy.deepcopy(network.state_dict())

    def inspect_epoch(epoch):
        modes.append((network.training, torch.is_grad_enabled()))
        if epoch == 0:
            assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())

    train_network(network, rows, loss, replace(SETTINGS, epochs=2), begin_epoch=inspect_epoch)
    assert modes == [(False, False)] * 2


def test_bad_settings():
    with pytest.raises(ldp.InputError, match="at least one epoch"):
        Training(epochs=0)


def test_a_checkpoint_of_another_release_is_refused(digits, training, tmp_path):
    from labeldp.learn import Supervised

    learner = Supervised("linear", replace(training, epochs=1, checkpoint=tmp_path / "c.pt"))
    learner.fit(digits.features, digits.release(ldp.RandomizedResponse(1.0)))
    other = digits.release(ldp.RandomizedResponse(1.0))
    with pytest.raises(ldp.InputError, match="another model, release or training"):
        learner.fit(digits.features, other)


@pytest.fixture
def graphs(monkeypatch):
    """What is compiled, each graph run as it is: tracing is tested here, not the code that a compiler writes."""
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter, compiler = CompileCounter(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda loss, **_: compiler(loss, backend=counter))
    return counter


LEARNERS = {
    "Supervised": {"mixup": 1.0, "augment": "strong", "label_smoothing": 0.1},
    "Bayes": {},
    "FixMatch": {},
    "CoTeaching": {},
    "AugDescent": {},
    "SoftMatch": {},
    "CrossFit": {},
}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's own, where it goes on after a break
@pytest.mark.parametrize("name", LEARNERS)
def test_compiling_changes_no_result_and_happens_once(digits, training, graphs, name):
    release = digits.release(ldp.RandomizedResponse(2.0))
    short = replace(training, epochs=4, batch_size=700)
    results = []
    for settings in (short, replace(short, compile=True)):
        learner = getattr(labeldp.learn, name)("mlp", settings, **LEARNERS[name])
        results.append(weights(learner.fit(digits.features, release).network))
    assert torch.equal(*results)
    assert graphs.frame_count == (2 if name in ("AugDescent", "CrossFit") else 1)  # these have two phases


@pytest.mark.parametrize("learner", [SoftMatch, CrossFit])
def test_a_stopped_learner_with_a_slow_copy_goes_on_as_if_it_had_not(digits, tmp_path, learner):
    release = digits.release(ldp.RandomizedResponse(2.0))

    class Stop(Exception):
        pass

    def stop(epoch, loss):
        if epoch == 2:
            raise Stop

    whole = Training(epochs=4, batch_size=128, learning_rate=0.05, device="cpu")
    expected = learner(training=whole).fit(digits.features, release).predict_proba(digits.new)
    part = replace(whole, checkpoint=tmp_path / "half.pt", progress=stop)
    with pytest.raises(Stop):
        learner(training=part).fit(digits.features, release)
    resumed = learner(training=replace(part, progress=False)).fit(digits.features, release)
    assert np.array_equal(resumed.predict_proba(digits.new), expected)


def test_where_the_compiler_fails_the_loss_runs_as_it_is(monkeypatch):
    def fails(graph, inputs):
        raise RuntimeError("no such kernel")

    torch._dynamo.reset()
    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda loss, **_: compiler(loss, backend=fails))
    network, rows, loss = problem()
    plain = weights(train_network(network, rows, loss, SETTINGS))
    network, rows, loss = problem()
    with pytest.warns(UserWarning, match="no such kernel"):
        compiled = weights(train_network(network, rows, loss, replace(SETTINGS, compile=True)))
    assert torch.equal(plain, compiled)


def test_a_progress_callback_is_called_after_each_epoch(tmp_path):
    reported = []
    network, rows, loss = problem()
    train_network(
        network, rows, loss, replace(SETTINGS, epochs=3, progress=lambda epoch, mean: reported.append((epoch, mean)))
    )
    assert [epoch for epoch, _ in reported] == [1, 2, 3]
    assert all(0 < mean < 3 for _, mean in reported)


def test_a_folder_keeps_a_checkpoint_for_each_training(tmp_path, digits):
    noisy = digits.release(ldp.RandomizedResponse(2.0))
    training = Training(epochs=2, batch_size=128, learning_rate=0.1, checkpoint=tmp_path, device="cpu")
    one = Supervised("mlp", training).fit(digits.features, noisy)
    two = Supervised("mlp", training, mixup=4.0).fit(digits.features, noisy)
    Supervised("mlp", training).fit(digits.features, noisy.keep(np.arange(noisy.n_rows) < 500))
    for shift in (0, 1):  # beliefs from one release that differ
        posteriors = noisy.with_posterior(np.eye(10)[(noisy.labels() + shift) % 10])
        Supervised("mlp", training, targets="posteriors").fit(digits.features, posteriors)
    assert len(list(tmp_path.iterdir())) == 5
    again = Supervised("mlp", training).fit(digits.features, noisy)  # from its own checkpoint: nothing left to do
    weights, same, other = (model.network.state_dict()["head.weight"] for model in (one, again, two))
    assert torch.equal(weights, same)
    assert not torch.equal(weights, other)


def test_a_small_network_trains_on_one_thread_and_gives_the_others_back():
    network, rows, loss = problem()
    seen, before = [], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train_network(network, rows, lambda at: seen.append(torch.get_num_threads()) or loss(at), SETTINGS)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_training_from_another_start_or_with_other_confidence_has_its_own_checkpoint(tmp_path, digits):
    """Or a model would hold what another start had learnt, and state less."""
    release, more = (digits.release(ldp.RandomizedResponse(epsilon), seed=3) for epsilon in (1.0, 8.0))
    training = Training(epochs=1, batch_size=128, learning_rate=0.1, device="cpu")
    starts = [Supervised("linear", training).fit(digits.features, each) for each in (release, more)]
    learner = Supervised("linear", replace(training, checkpoint=tmp_path))
    models = [learner.fit(digits.features, release, start) for start in reversed(starts)]
    assert not torch.equal(*(weights(model.network) for model in models))
    assert [model.guarantee.epsilon for model in models] == [9.0, 1.0]
    for confidence in (0.6, 0.9):
        codes = np.zeros(release.n_rows, np.int32)
        learner = replace(learner, targets="posteriors")
        models.append(learner.fit(digits.features, release.relabel(codes, confidence)))
    assert not torch.equal(*(weights(model.network) for model in models[2:]))


def test_a_bar_may_have_a_name(monkeypatch):
    from rich.console import Console

    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **options: console)
    plain, silent = replace(SETTINGS, epochs=2, progress=True), replace(SETTINGS, epochs=2)
    for training in (plain.with_progress_name("first of two"), plain):
        network, rows, loss = problem()
        train_network(network, rows, loss, training)
    said = shown.getvalue()
    assert "first of two" in said
    assert "training" in said
    assert "loss nan" not in said
    assert silent.with_progress_name("first of two") == silent
