import copy
import multiprocessing
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from labeldp.bits import SYSTEM, SystemStream

FORK = multiprocessing.get_context("fork") if sys.platform != "win32" else None
needs_fork = pytest.mark.skipif(FORK is None, reason="this system does not fork")


def words_of_a_forked_child(stream):
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=lambda: theirs.send(stream.uint64(64).tolist()))
    child.start()
    try:
        return set(ours.recv()) if ours.poll(10) else None
    finally:
        child.kill()
        child.join()


def test_a_stream_is_the_aes_256_keystream_of_a_key_from_the_system(monkeypatch):
    monkeypatch.setattr("os.urandom", lambda count: bytes(range(7, 7 + count)))
    stream = SystemStream()
    reference = Cipher(algorithms.AES(bytes(range(7, 39))), modes.CTR(bytes(range(7, 23)))).encryptor()
    assert stream.uint64(3).tobytes() == reference.update(bytes(24))
    assert stream.uint16(5).tobytes() == reference.update(bytes(10))


@needs_fork
@pytest.mark.parametrize("stream", [SYSTEM, SystemStream()], ids=["system", "another"])
def test_children_and_parent_draw_different_words(stream):
    stream.uint64(3)
    children = [words_of_a_forked_child(stream) for _ in range(2)]
    parent = set(stream.uint64(64).tolist())
    assert len(set.union(parent, *children)) == 3 * 64


@needs_fork
def test_a_child_can_draw_though_another_thread_held_the_lock_at_the_fork():
    stream, held, done = SystemStream(), threading.Event(), threading.Event()

    def hold():
        with stream._lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(10)
        assert words_of_a_forked_child(stream) is not None
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_a_stream_is_never_duplicated(duplicate):
    with pytest.raises(TypeError, match="repeat its noise"):
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
def test_a_draw_has_its_size_and_never_repeats(count):
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
