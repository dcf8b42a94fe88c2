import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import fresh_keystream
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from labeldp.privacy.noise import secure_stream
from labeldp.privacy.noise.secure_stream import SystemStream

# Parent and child release the same counts. Where they share a keystream, they have the same noise.
RELEASES = r"""
import ctypes, os, sys
import numpy as np
import labeldp as ldp
from labeldp.mechanisms import GroupHistogram

def noisy_counts():
    vault = ldp.Vault(np.arange(8) % 2, ldp.LabelSpace([0, 1]), ldp.Budget(9.0))
    query = GroupHistogram(groups=np.zeros(8, int), epsilon=0.01)
    return [vault.release(query, row_selection=np.arange(5 + i)).counts.tolist() for i in range(3)]

noisy_counts()
received, sent = os.pipe()
child = {"libc": ctypes.PyDLL(None).fork, "python": os.fork}[sys.argv[1]]()
counts = noisy_counts()
if child == 0:
    os.write(sent, repr(counts).encode())
    os._exit(0)
os.waitpid(child, 0)
print(counts, os.read(received, 10000).decode(), sep="\n")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")
@pytest.mark.parametrize("fork", ["libc", "python"])
def test_a_forked_process_draws_other_noise_for_each_way_to_fork(fork):
    done = subprocess.run([sys.executable, "-c", RELEASES, fork], capture_output=True, text=True, check=True)
    parent, child = done.stdout.splitlines()
    assert parent != child


def test_each_draw_is_an_aes_256_keystream_of_a_key_from_the_system(monkeypatch):
    monkeypatch.setattr(secure_stream, "_new_keystream", fresh_keystream)
    monkeypatch.setattr("os.urandom", lambda count: bytes(range(7, 7 + count)))
    reference = Cipher(algorithms.AES(bytes(range(7, 39))), modes.CTR(bytes(range(7, 23)))).encryptor()
    keystream = reference.update(bytes(24))
    assert SystemStream().uint64(3).tobytes() == keystream
    assert SystemStream().uint16(5).tobytes() == keystream[:10]


def test_each_draw_has_its_own_key(monkeypatch):
    """A stream without state cannot be shared, so that no fork has to be noticed."""
    keys = []
    monkeypatch.setattr(secure_stream, "_new_keystream", lambda: keys.append(fresh_keystream()) or keys[-1])
    stream = SystemStream()
    stream.uint64(1)
    stream.uint16(1 << 20)
    assert len(keys) == 2
    assert not vars(stream)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_a_stream_is_never_duplicated(duplicate):
    with pytest.raises(TypeError, match="cannot be copied"):
        duplicate(SystemStream())


def test_threads_never_share_words():
    stream = SystemStream()

    def draw(size):
        return [stream.uint64(size) for _ in range(200)]

    with ThreadPoolExecutor(8) as pool:
        parts = [part for parts in pool.map(draw, [1, 2, 3, 5, 50, 500, 700, 900]) for part in parts]
    words = np.concatenate(parts)
    assert np.unique(words).size == words.size


@pytest.mark.parametrize("count", [0, 1, 7, (1 << 17) - 1, 1 << 17, (1 << 18) + 3])
def test_a_draw_has_its_size_and_repeats_no_word(count):
    words = SystemStream().uint64(count)
    assert words.shape == (count,)
    assert np.unique(words).size == count
    assert SystemStream().uint16(count).shape == (count,)


def test_consecutive_draws_and_separate_streams_differ():
    one, two = SystemStream(), SystemStream()
    words = [*one.uint64(64), *one.uint64(64), *two.uint64(64)]
    assert len(set(words)) == 3 * 64


@pytest.mark.parametrize("name", ["uint16", "uint64"])
def test_every_bit_is_set_half_of_the_time(name):
    words = getattr(SystemStream(), name)(1 << 16)
    bits = np.unpackbits(words.view(np.uint8).reshape(words.size, -1), axis=1)
    deviation = (bits.mean(axis=0) - 0.5) * 2 * words.size**0.5
    assert np.abs(deviation).max() < 6
    together = np.corrcoef(bits.T) * words.size**0.5
    assert np.abs(together[~np.eye(len(together), dtype=bool)]).max() < 6.5
