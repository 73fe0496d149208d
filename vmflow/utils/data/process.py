"""A worker that is a process: its proxy in the consumer's process, its program, and the messages between the two.

A thread of the consumer's process asks, over a pair of connected sockets, and waits for the answer; so ordering and
prefetching are the same for threads and processes, and the death of a process ends a stream of bytes, which the thread
cannot miss.

Large arrays, see `_Pickler`, travel through the sockets too, outside of the pickle.
"""

from __future__ import annotations

import contextvars
import os
import pickle
import signal
import socket
import struct
import threading
import traceback
from io import BytesIO
from multiprocessing.context import BaseContext
from typing import Any, Final

import attrs
import numpy as np

from vmflow.kernels.intra_op import set_num_threads
from vmflow.ops.creation import creation
from vmflow.tensors import Tensor
from vmflow.vm.virtual_machine import live_machines

from .fetch import Fetcher, RanOut, Recipe

# Buffers of fewer bytes stay in the pickle.
_LARGE: Final = 4096

# How many seconds a process may take to end before it is killed.
_GRACE_SECONDS: Final = 2.0

_LOST: Final = (EOFError, ConnectionError, OSError)


# Messages: the number of parts, the size of each, the parts; the first is a pickle, the others its buffers.


class _Pickler(pickle.Pickler):
    """Pickles plain CPU tensors as arrays; large contiguous arrays are not copied into the pickle.

    The latter holds for numpy's bools and numbers, not for bfloat16.
    """

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is Tensor and thing.device.type == "cpu":
            # `numpy.ascontiguousarray` would make a 0-d array one-dimensional.
            return _arrived, (np.asarray(thing.detach()._array(), order="C"), thing.requires_grad)
        return NotImplemented


def _arrived(array: Any, requires_grad: bool) -> Tensor:
    """Make a tensor of the other process's array, on the default device of this process's context."""
    return creation.from_array(array, creation.chosen_device(None)).requires_grad_(requires_grad)


def _packed(message: object) -> list[Any]:
    parts: list[Any] = []

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LARGE:
            return True
        parts.append(raw)
        return False

    stream = BytesIO()
    _Pickler(stream, 5, buffer_callback=keep_inside).dump(message)
    return [stream.getvalue(), *parts]


# Set as the interpreter exits: multiprocessing's own handler joins the processes, and must not find one closed.
_exiting = threading.Event()


def leave_open() -> None:
    """Note that the interpreter is exiting: `Process` objects are not closed from now on."""
    _exiting.set()


def _send(link: socket.socket, parts: list[Any]) -> None:
    sizes = [len(part) for part in parts]
    link.sendall(b"".join([struct.pack(f"!I{len(sizes)}Q", len(sizes), *sizes), parts[0]]))
    for part in parts[1:]:
        link.sendall(part)


def _receive(link: socket.socket) -> list[memoryview]:
    """The parts of the next message.

    Raises:
        EOFError, OSError: if the other side has ended.
    """
    (count,) = struct.unpack("!I", _read(link, 4))
    sizes = struct.unpack(f"!{count}Q", _read(link, 8 * count))
    return [_read(link, size) for size in sizes]


def _unpacked(parts: list[memoryview]) -> Any:
    return pickle.loads(parts[0], buffers=parts[1:])


def _read(link: socket.socket, size: int) -> memoryview:
    # numpy's memory, not a bytearray, which would be cleared first.
    view = np.empty(size, np.uint8).data
    got = 0
    while got < size:
        count = link.recv_into(view[got:])
        if not count:
            raise EOFError
        got += count
    return view


# In the worker's process


def _serve(link: socket.socket, recipe: Recipe, number: int) -> None:
    """The program of the worker's process: answer until the consumer's side has ended."""
    # Ctrl-C goes to all processes of a terminal; the consumer, which gets it too, ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # One thread for ops, since the other workers and the consumer need cores, too.
    set_num_threads(1)
    # A new context: a forked process has the consumer's, and must not use the virtual machine in that.
    contextvars.Context().run(_answer_all, link, Fetcher(recipe, number))


def _answer_all(link: socket.socket, fetcher: Fetcher) -> None:
    while True:
        try:
            request = _receive(link)
        except _LOST:
            return
        method, arguments = _unpacked(request)
        parts = _answer(fetcher, method, arguments)
        try:
            _send(link, parts)
        except _LOST:
            return


def _answer(fetcher: Fetcher, method: str, arguments: tuple[Any, ...]) -> list[Any]:
    try:
        return _packed((True, getattr(fetcher, method)(*arguments)))
    except RanOut as ended:
        return _packed((False, ended))
    except BaseException as error:
        return _packed((False, _portable(error)))


def _portable(error: BaseException) -> BaseException:
    """The error with its traceback as a note, since pickle drops that; a RuntimeError if pickle cannot copy it."""
    note = f"in the data worker's process:\n{''.join(traceback.format_exception(error))}"
    try:
        copy: object = pickle.loads(pickle.dumps(error))
    except Exception as reason:
        return RuntimeError(f"{type(error).__name__}, which cannot be pickled ({reason}), {note}")
    if type(copy) is not type(error):
        return RuntimeError(f"{type(error).__name__}, which pickle does not give back, {note}")
    error.add_note(note)
    return error


# In the consumer's process

# No process may be forked while both ends of another one's connection are open in the consumer's: the forked process
# would have copies of both, and the other process might never see the end of the consumer's side.
_starting = threading.Lock()


def _after_fork_in_child() -> None:
    global _starting
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@attrs.define(eq=False)
class RemoteFetcher:
    """A `Fetcher` in another process.  All but `interrupt` is called on one thread only.

    Args:
        recipe: the settings of the loader; it must be picklable unless processes are forked.
        number: the worker's, from 0.
        context: how processes are started.
    """

    _recipe: Recipe
    _number: int
    _context: Any
    _process: Any = None
    _link: socket.socket | None = None
    _asking: bool = False
    _interrupted: bool = False

    def begin(self, base_seed: int) -> None:
        """Begin an iteration in the process, as `Fetcher.begin` does; start the process if there is none."""
        if self._process is None:
            self._start()
        self._ask("begin", base_seed)

    def fetch(self, ticket: int, order: Any) -> Any:
        """Fetch a batch in the process, as `Fetcher.fetch` does.

        Raises:
            RuntimeError: also if the process has died or `interrupt` was called.
        """
        return self._ask("fetch", ticket, order)

    def forget(self) -> None:
        """As `Fetcher.forget`."""
        if self._process is not None:
            try:
                self._ask("forget")
            except RuntimeError:
                return  # the process has died or was interrupted; `begin` starts another one if there is more to do

    def interrupt(self) -> None:
        """Shut down the connection, so that a call which waits for an answer fails; any thread may call this."""
        self._interrupted = True
        link = self._link
        if link is not None:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # `end` may just have closed the link, on the worker's thread

    def end(self) -> int | None:
        """End the process, even in the middle of its work; returns its exit code, None if there was no process."""
        process, link = self._process, self._link
        self._process = self._link = None
        if process is None or link is None:
            return None
        link.close()
        if self._asking and self._interrupted:
            process.terminate()
        process.join(_GRACE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        code: int = process.exitcode
        if not _exiting.is_set():
            process.close()
        return code

    def _start(self) -> None:
        if self._context.get_start_method() == "fork":
            # Other threads may still compute the dataset's tensors: the forked process is to find them computed.
            for machine in live_machines():
                machine.drain()
        # The process inherits the mask; else it would die noisily of a Ctrl-C that comes before it ignores the signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        with _starting:
            ours, theirs = socket.socketpair()
            try:
                process = self._context.Process(
                    target=_serve,
                    args=(theirs, self._recipe, self._number),
                    name=f"vmflow-data-{self._number}",
                    daemon=True,
                )
                process.start()
            except BaseException as error:
                ours.close()
                error.add_note(
                    "while starting a data worker's process: dataset, collate_fn and worker_init_fn are sent to it by "
                    'pickle, so functions and classes must be importable; worker_kind="thread" needs none of this'
                )
                raise
            finally:
                theirs.close()
        self._process, self._link = process, ours
        if self._interrupted:
            self.interrupt()

    def _ask(self, method: str, *arguments: Any) -> Any:
        link, process = self._link, self._process
        if link is None:
            raise RuntimeError(f"data worker {self._number} has died")
        request = _packed((method, arguments))
        self._asking = True
        try:
            _send(link, request)
            answer = _receive(link)
        except _LOST:
            pid = process.pid
            raise RuntimeError(self._obituary(pid, self.end())) from None
        self._asking = False
        good, value = _unpacked(answer)
        if good:
            return value
        raise value

    def _obituary(self, pid: int, code: int | None) -> str:
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            how = f"was killed by {name}"
            how += ", as the system does when memory runs out" if name == "SIGKILL" else ""
        else:
            how = f"ended with exit code {code}; if it could not start, its standard error says why"
        return f"data worker {self._number} (process {pid}) {how}"


def start_method(given: str | BaseContext | None) -> BaseContext:
    """The way to start processes; "spawn" if none is given.

    "fork" is no good default: a forked process has copies of locks but not of the threads that hold them, and of the
    event loop's sockets; and every fork waits for all issued work to end.

    Raises:
        ValueError: for a name that `multiprocessing` does not know.
    """
    import multiprocessing

    return multiprocessing.get_context(given or "spawn") if not isinstance(given, BaseContext) else given
