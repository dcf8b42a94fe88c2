"""Where teachers train: in this process, in several, or on a Ray cluster. All of them are inside the vault's boundary.

An engine calls `work(shared, job)` for every job and gives back the results in the order of the jobs. A worker that
dies costs the jobs that it had in hand and no others: each is tried again, `retries` times at most.
"""

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from labeldp.core.errors import InputError, LabelDPError

Work = Callable[[Any, Any], Any]
Told = Callable[[], None]  # called after every job that is done

_SPAWN = multiprocessing.get_context("spawn")  # a fork would copy locks that torch's threads hold


def run(
    work: Work,
    shared: Any,
    jobs: Sequence[Any],
    engine: str = "processes",
    *,
    workers: int | None = None,
    retries: int = 2,
    told: Told = lambda: None,
) -> list[Any]:
    """Do all jobs on an engine: "here", "processes", "ray", or the address of a cluster ("ray://head:10001")."""
    if workers is not None and workers < 1:
        raise InputError("Teachers need at least one worker.")
    if engine == "here":
        return list(_here(work, shared, jobs, told))
    if engine == "processes":
        return _processes(work, shared, jobs, min(workers or os.cpu_count() or 1, len(jobs)), retries, told)
    if engine == "ray" or engine.startswith("ray://"):
        return _ray(work, shared, jobs, None if engine == "ray" else engine, workers, retries, told)
    raise InputError(f"There is no engine {engine!r}: choose here, processes, ray, or an address ray://HOST:PORT.")


def _here(work: Work, shared: Any, jobs: Sequence[Any], told: Told) -> Iterator[Any]:
    for job in jobs:
        yield work(shared, job)
        told()


def _processes(work: Work, shared: Any, jobs: Sequence[Any], workers: int, retries: int, told: Told) -> list[Any]:
    if multiprocessing.parent_process() is not None:
        raise InputError('Workers cannot start workers: put the script\'s own calls under if __name__ == "__main__".')
    slots = [_Slot(work, shared, retries) for _ in range(workers)]
    free, results = list(slots), [None] * len(jobs)

    def do(job: Any) -> Any:
        slot = free.pop()  # there are as many threads as slots
        try:
            return slot.do(job)
        finally:
            free.append(slot)

    with ThreadPoolExecutor(workers) as threads:
        waiting = {threads.submit(do, job): place for place, job in enumerate(jobs)}
        try:
            while waiting:  # wakes up now and then: an interrupt may reach a thread other than this one
                for done in wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    results[waiting.pop(done)] = done.result()
                    told()
        finally:  # on an error or an interrupt, nobody waits for trainings that are under way
            threads.shutdown(wait=False, cancel_futures=True)
            for slot in slots:
                slot.close()
    return results


class _Slot:
    """One worker process after another: a new one when the last has died."""

    def __init__(self, work: Work, shared: Any, retries: int) -> None:
        self._begin, self._retries = (work, shared), retries
        self._process: Any = None
        self._closed = False

    def do(self, job: Any) -> Any:
        for _ in range(self._retries + 1):
            try:
                return self._once(job)
            except (EOFError, OSError):  # the other end of the pipe is gone
                self._process = None
            if self._closed:
                break
        raise LabelDPError(_DIED.format(times=self._retries + 1))

    def _once(self, job: Any) -> Any:
        if self._process is None:
            self._pipe, theirs = _SPAWN.Pipe()
            self._process = _SPAWN.Process(target=_serve, args=(theirs, *self._begin), daemon=True)
            self._process.start()
            theirs.close()
        self._pipe.send(job)
        good, result = self._pipe.recv()
        if not good:
            raise LabelDPError(_FAILED.format(kind=result))
        return result

    def close(self) -> None:
        self._closed = True
        if self._process is not None:
            self._process.kill()
            self._process.join()


def _serve(pipe: Any, work: Work, shared: Any) -> None:
    """Do what comes through the pipe, until it is closed; an interrupt is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with single_thread():
        while True:
            try:
                job = pipe.recv()
            except EOFError:
                return
            try:
                answer = True, work(shared, job)
            except Exception as error:  # its text could hold a label, so only its kind is told
                answer = False, type(error).__name__
            pipe.send(answer)


def _ray(
    work: Work, shared: Any, jobs: Sequence[Any], address: str | None, workers: int | None, retries: int, told: Told
) -> list[Any]:
    try:
        import ray
    except ImportError:
        raise InputError("Ray is not installed: pip install 'labeldp[ray]', or choose the engine processes.") from None
    ours = not ray.is_initialized()
    if ours:
        try:
            cores = None if address else workers
            ray.init(address, num_cpus=cores, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as problem:
            kind = type(problem).__name__
            raise InputError(f"The Ray cluster cannot be reached ({kind}): check its address.") from None
    try:
        place = ray.put(shared)
        remote = ray.remote(num_cpus=1, max_retries=retries)(_with_one_thread)
        waiting = {remote.remote(work, place, job): number for number, job in enumerate(jobs)}
        results = [None] * len(jobs)
        while waiting:
            for done in ray.wait(list(waiting), num_returns=1)[0]:
                results[waiting.pop(done)] = _result(ray, done, retries)
                told()
        return results
    finally:
        if ours:
            ray.shutdown()


def _result(ray: Any, done: Any, retries: int) -> Any:
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:
        kind = type(error.cause).__name__
    except ray.exceptions.RayError:
        raise LabelDPError(_DIED.format(times=retries + 1)) from None
    raise LabelDPError(_FAILED.format(kind=kind))


_DIED = "A worker died {times} times over one teacher, perhaps for lack of memory: use fewer workers."
_FAILED = "A worker could not go on ({kind}): try fewer workers, or the engine here."


def _with_one_thread(work: Work, shared: Any, job: Any) -> Any:
    with single_thread():
        return work(shared, job)


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread: a result is then the same to the last bit however many workers share the machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
