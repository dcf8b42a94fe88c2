"""Engines that train teachers: this process, worker processes, or a Ray cluster. All are inside the vault's boundary.

An engine calls `work(shared, job)` for every job and returns the results in the order of the jobs. If a worker dies,
only its unfinished jobs are lost. Each of them is tried again, `retries` times at most.
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
# Called after every finished job.
JobCallback = Callable[[], None]

# A fork would copy locks that threads of torch hold.
_SPAWN_CONTEXT = multiprocessing.get_context("spawn")


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
    """Run all jobs on an engine, and return their results in order.

    Args:
        work: The function of the shared inputs and a job.
        shared: The inputs that all jobs share.
        jobs: The jobs.
        engine: "here", "processes", "ray", or the address of a Ray cluster ("ray://head:10001").
        workers: The number of workers; None for one for each core.
        retries: How often a job is repeated after its worker died.
        on_job_done: Called after every finished job.

    Raises:
        InputError: The engine does not exist, or cannot be reached.
        LabelDPError: A worker failed, or died too often.
    """
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
            while pending:  # with a timeout, because an interrupt may reach another thread than this one
                for future in wait(pending, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    results[pending.pop(future)] = future.result()
                    on_job_done()
        finally:  # after an error or an interrupt, do not wait for running jobs
            threads.shutdown(wait=False, cancel_futures=True)
            for slot in slots:
                slot.close()
    return results


class _WorkerSlot:
    """Runs jobs in a worker process, and starts a new process after the last one died."""

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
    """Run the jobs that come through the pipe until it is closed. The parent handles interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with single_thread():
        while True:
            try:
                job = pipe.recv()
            except EOFError:
                return
            try:
                reply = True, work(shared, job)
            except Exception as error:  # the message could hold a label, so only the type is sent
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
_WORKER_FAILED = "A worker failed ({kind}): try fewer workers, or the engine here."


def _with_one_thread(work: Work, shared: Any, job: Any) -> Any:
    with single_thread():
        return work(shared, job)


@contextmanager
def single_thread() -> Iterator[None]:
    """Use one thread of torch, so that a result has the same bits for every number of workers."""
    import torch

    n_threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads_before)
