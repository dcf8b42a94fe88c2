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
JobCallback = Callable[[], None]  # called after every job that is done

_SPAWN_CONTEXT = multiprocessing.get_context("spawn")  # a fork would copy locks that torch's threads hold


def run(
    work: Work,
    shared: Any,
    jobs: Sequence[Any],
    engine: str = "processes",
    *,
    workers: int | None = None,
    retries: int = 2,
    on_job_done: JobCallback = lambda: None,
) -> list[Any]:
    """Do all jobs on an engine: "here", "processes", "ray", or the address of a cluster ("ray://head:10001")."""
    if workers is not None and workers < 1:
        raise InputError("Teachers need at least one worker.")
    if engine == "here":
        return list(_run_here(work, shared, jobs, on_job_done))
    if engine == "processes":
        return _run_processes(work, shared, jobs, min(workers or os.cpu_count() or 1, len(jobs)), retries, on_job_done)
    if engine == "ray" or engine.startswith("ray://"):
        return _run_ray(work, shared, jobs, None if engine == "ray" else engine, workers, retries, on_job_done)
    raise InputError(f"There is no engine {engine!r}: choose here, processes, ray, or an address ray://HOST:PORT.")


def _run_here(work: Work, shared: Any, jobs: Sequence[Any], on_job_done: JobCallback) -> Iterator[Any]:
    for job in jobs:
        yield work(shared, job)
        on_job_done()


def _run_processes(
    work: Work, shared: Any, jobs: Sequence[Any], n_workers: int, retries: int, on_job_done: JobCallback
) -> list[Any]:
    if multiprocessing.parent_process() is not None:
        raise InputError('Workers cannot start workers: put the script\'s own calls under if __name__ == "__main__".')
    slots = [_WorkerSlot(work, shared, retries) for _ in range(n_workers)]
    free_slots, results = list(slots), [None] * len(jobs)

    def run_job(job: Any) -> Any:
        slot = free_slots.pop()  # there are as many threads as slots
        try:
            return slot.run(job)
        finally:
            free_slots.append(slot)

    with ThreadPoolExecutor(n_workers) as threads:
        pending = {threads.submit(run_job, job): index for index, job in enumerate(jobs)}
        try:
            while pending:  # wakes up now and then: an interrupt may reach a thread other than this one
                for future in wait(pending, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    results[pending.pop(future)] = future.result()
                    on_job_done()
        finally:  # on an error or an interrupt, nobody waits for trainings that are under way
            threads.shutdown(wait=False, cancel_futures=True)
            for slot in slots:
                slot.close()
    return results


class _WorkerSlot:
    """One worker process after another: a new one when the last has died."""

    def __init__(self, work: Work, shared: Any, retries: int) -> None:
        self._worker_args, self._retries = (work, shared), retries
        self._process: Any = None
        self._closed = False

    def run(self, job: Any) -> Any:
        for _ in range(self._retries + 1):
            try:
                return self._run_once(job)
            except (EOFError, OSError):  # the other end of the pipe is gone
                self._process = None
            if self._closed:
                break
        raise LabelDPError(_WORKER_DIED.format(times=self._retries + 1))

    def _run_once(self, job: Any) -> Any:
        if self._process is None:
            self._pipe, child_pipe = _SPAWN_CONTEXT.Pipe()
            self._process = _SPAWN_CONTEXT.Process(target=_serve, args=(child_pipe, *self._worker_args), daemon=True)
            self._process.start()
            child_pipe.close()
        self._pipe.send(job)
        succeeded, result = self._pipe.recv()
        if not succeeded:
            raise LabelDPError(_WORKER_FAILED.format(kind=result))
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
                reply = True, work(shared, job)
            except Exception as error:  # its text could hold a label, so only its kind is told
                reply = False, type(error).__name__
            pipe.send(reply)


def _run_ray(
    work: Work,
    shared: Any,
    jobs: Sequence[Any],
    address: str | None,
    workers: int | None,
    retries: int,
    on_job_done: JobCallback,
) -> list[Any]:
    try:
        import ray
    except ImportError:
        raise InputError("Ray is not installed: pip install 'labeldp[ray]', or choose the engine processes.") from None
    owns_cluster = not ray.is_initialized()
    if owns_cluster:
        try:
            n_cores = None if address else workers
            ray.init(address, num_cpus=n_cores, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            kind = type(error).__name__
            raise InputError(f"The Ray cluster cannot be reached ({kind}): check its address.") from None
    try:
        shared_ref = ray.put(shared)
        remote = ray.remote(num_cpus=1, max_retries=retries)(_with_one_thread)
        pending = {remote.remote(work, shared_ref, job): index for index, job in enumerate(jobs)}
        results = [None] * len(jobs)
        while pending:
            for reference in ray.wait(list(pending), num_returns=1)[0]:
                results[pending.pop(reference)] = _ray_result(ray, reference, retries)
                on_job_done()
        return results
    finally:
        if owns_cluster:
            ray.shutdown()


def _ray_result(ray: Any, reference: Any, retries: int) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        kind = type(error.cause).__name__
    except ray.exceptions.RayError:
        raise LabelDPError(_WORKER_DIED.format(times=retries + 1)) from None
    raise LabelDPError(_WORKER_FAILED.format(kind=kind))


_WORKER_DIED = "A worker died {times} times over one teacher, perhaps for lack of memory: use fewer workers."
_WORKER_FAILED = "A worker could not go on ({kind}): try fewer workers, or the engine here."


def _with_one_thread(work: Work, shared: Any, job: Any) -> Any:
    with single_thread():
        return work(shared, job)


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread: a result is then the same to the last bit however many workers share the machine."""
    import torch

    n_threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads_before)
