"""Puts this folder on the path, so that tests share `scripted`, and makes a run of them repeatable.

What is drawn from the system's stream in a test, or by a fixture, hangs on its name alone, so that luck is the same
everywhere; processes that a test starts draw as they always do. With `--fresh`, the operating system gives the keys and
hypothesis looks for new examples, so that a test which holds by luck is found (`pytest --fresh`, some times).
"""

import functools
import hashlib
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import settings

from labeldp.privacy.noise import secure_stream

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None)


def pytest_addoption(parser):
    parser.addoption("--fresh", action="store_true", help="draw other noise and other examples than the last time")


def pytest_configure(config):
    settings.load_profile("fresh" if config.getoption("--fresh") else "repeatable")


# Where a file of tests, or a test, was before it was renamed: its noise stays what it was.
_OLD_NAMES = json.loads(Path(__file__).with_name("noise_keys.json").read_text())


def _noise_key(node: str) -> str:
    """Return the name by which the noise of a test is keyed: the one that it had at first."""
    path, separator, test = node.partition("::")
    function, bracket, parameters = test.partition("[")
    if node in _OLD_NAMES:
        return _OLD_NAMES[node]
    if (renamed := f"{path}::{function}") in _OLD_NAMES:
        return _OLD_NAMES[renamed] + bracket + parameters
    return _OLD_NAMES.get(path, path) + separator + test


fresh_keystream = secure_stream._new_keystream


class _Shared:
    """One keystream for all draws of a test; threads take turns."""

    def __init__(self, key):
        self._lock = threading.Lock()
        self._cipher = Cipher(algorithms.AES(key[:32]), modes.CTR(key[32:48])).encryptor()

    def update_into(self, data, out):
        with self._lock:
            return self._cipher.update_into(data, out)


def _key_by(name, config):
    """Key the noise of this process by a name instead of the operating system."""
    if config.getoption("--fresh"):
        return
    keystream, process = _Shared(hashlib.sha512(name.encode()).digest()), os.getpid()
    secure_stream._new_keystream = lambda: keystream if os.getpid() == process else fresh_keystream()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    _key_by(
        f"{_noise_key(request.node.nodeid)}/{fixturedef.argname}/{getattr(request, 'param_index', 0)}", request.config
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    _key_by(_noise_key(item.nodeid), item.config)
    if "MUTANT_UNDER_TEST" in os.environ:
        _clear_caches(item.module)


def _clear_caches(tests):
    """Forget what earlier tests have computed: mutmut asks which tests reach a function."""
    for module in [tests, *(module for name, module in sys.modules.items() if name.startswith("labeldp."))]:
        for value in vars(module).values():
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()
