import numpy as np
import pytest

from labeldp.audit.noise_repetition import collision_probability, prints_same_twice, repeats_noise
from labeldp.core.errors import LabelDPError

SEEDED_VAULT = """
import numpy as np, labeldp as ldp
vault = ldp.Vault([0, 1] * 200, ldp.LabelSpace([0, 1]), ldp.Budget(1.0))
class Seeded:
    generator = np.random.default_rng(0)
    def uint16(self, count): return self.generator.integers(0, 2**16, count, np.uint16)
    def uint64(self, count): return self.generator.integers(0, 2**64, count, np.uint64)
vault._bits = Seeded()
print(vault.release(ldp.RandomizedResponse(1.0)).codes.tolist())
"""


def test_a_seeded_vault_is_caught_by_two_fresh_processes():
    assert prints_same_twice(SEEDED_VAULT)


def test_noise_of_the_system_is_new_in_every_process():
    assert repeats_noise("laplace", 1.0, 0.0) is False


def test_equal_releases_say_nothing_where_noise_is_no_choice(monkeypatch):
    monkeypatch.setattr("labeldp.audit.noise_repetition.prints_same_twice", lambda *_: True)
    assert repeats_noise("rr", 50.0, 0.0) is None
    assert repeats_noise("rr", 1.0, 0.0) is True


def test_the_chance_of_equal_draws():
    assert collision_probability(np.zeros((10, 1), np.int64)) == 1
    assert collision_probability(np.array([[0], [1]] * 5)) == pytest.approx(2.0**-10)


def test_a_program_that_fails_is_no_evidence():
    with pytest.raises(LabelDPError, match="A fresh process could not draw: ZeroDivisionError"):
        prints_same_twice("1 / 0")
