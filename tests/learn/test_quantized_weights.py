import torch

from labeldp.learn.quantized_weights import pack, unpack


def test_a_weight_moves_by_half_a_step_of_its_output_at_most():
    torch.manual_seed(0)
    outputs = torch.logspace(-6, 6, 12)[:, None, None, None]
    state = {"kernel": torch.randn(12, 3, 5, 5) * outputs, "zeros": torch.zeros(2, 3), "bias": torch.randn(12)}
    state |= {"count": torch.tensor(7), "variance": torch.tensor([1.0, 1e6])}
    packed = pack(state)
    assert sum(value.nbytes for value in packed.values()) < sum(value.nbytes for value in state.values()) / 3
    found = unpack(packed)
    assert found.keys() == state.keys()
    steps = state["kernel"].flatten(1).abs().amax(dim=1) / 127
    moved = (found["kernel"] - state["kernel"]).flatten(1).abs().amax(dim=1)
    assert (moved <= steps / 2 * 1.0001).all()
    assert (moved > steps / 4).all()  # so fine and no finer
    assert torch.equal(found["zeros"], state["zeros"])
    assert torch.equal(found["bias"], state["bias"].half())
    assert int(found["count"]) == 7
    assert torch.equal(found["variance"], state["variance"])  # too large for 16 bits


def test_other_states_stay_as_they_are():
    state = {"weight": torch.randn(3, 2), "bias": torch.randn(3)}
    found = unpack(state)
    assert all(found[name] is value for name, value in state.items())
