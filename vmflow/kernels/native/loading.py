"""`LOADER`: the C libraries of this process, one `Library` for each source, loaded or not.

A thread that lives as long as there are libraries to compile runs the compiler.  Other threads wait for it only in the
mode "wait" (VMFLOW_JIT=1) and in `settle`.  If a library cannot be compiled, this is logged, usually no others are
compiled, and numpy computes instead.

A compiler in the background must not slow down computations.  So only one runs at a time.  Unless a thread waits for
the library, the compiler starts a second after the first request or later, at the lowest priority.  If it takes too
long, or a thread begins to wait, it is stopped and run again at the usual priority.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from vmflow.kernels.generation import GENERATION

# `cache` and `compiling` import much of the standard library, which `import vmflow` should not do.  So the functions
# that need these modules import them.
if TYPE_CHECKING:
    from .cache import Folder
    from .compiling import Compilation

# The seconds after which a thread that waits for a library checks whether the compiling thread is still alive.
_LOOK: Final = 1.0

# The most seconds that the end of the process waits for the compiling thread, after its compiler was killed.
_GRACE: Final = 5.0

# For this many seconds after the first request for a library, nothing is compiled in the background: a program that
# ends by then needs no C kernels.
_DELAY: Final = 1.0

# Seconds that a compiler gets at the lowest priority before it is run again at the usual one.
_LOW_PATIENCE: Final = 10.0

MODES: Final = ("off", "background", "wait")


class Library:
    """C source, and the shared library made from it once that is compiled and loaded.

    Attributes:
        source: the C source.
        loaded: the shared library; None until it is loaded, and forever if it cannot be compiled.
        settled: an event that is set when `loaded` will not change any more.
        late: whether a caller wanted to use the library before it was loaded, since the last `settle`.
        begun: whether its compilation was asked for; then it was queued, unless the library was in the cache.
        urgent: whether it is compiled at the usual priority, and without delay.
        apart: whether other libraries are still compiled after an error of the compiler in this one.
    """

    def __init__(self, source: str, apart: bool = False) -> None:
        self.source = source
        self.apart = apart
        self.loaded: ctypes.CDLL | None = None
        self.settled = threading.Event()
        self.late = False
        self.begun = False
        self.urgent = False

    def function(self, name: str) -> Callable[..., Any]:
        """Return function `name` of the loaded library, declared to return nothing; ctypes releases the GIL in it."""
        found: Any = getattr(self.loaded, name)
        found.restype = None
        return found  # type: ignore[no-any-return]

    def usable(self, exact: bool) -> bool:
        """Whether a function of this library may be used now.

        A function that is not exact is used from the first call or, until `settle`, never, so that
        results do not change when a compiler finishes in between.

        Args:
            exact: whether the function's results agree with numpy's to the bit, but for the sign of the extremum of two
                zeros.
        """
        if self.loaded is None:
            self.late = True
            return False
        return exact or not self.late


class Loader:
    """Loads and compiles the C libraries of this process.

    Attributes:
        arrived: a number that grows with each loaded library, assignment to `mode`, and `settle`; failed lookups of
            functions are repeated when it has changed.
        problem: the error after which no more libraries are compiled; None if there was none.
        watchers: functions called when the usable C functions may have changed otherwise than by one more library.

    Args:
        delay: for how many seconds after the first request nothing is compiled in the background.
        patience: the seconds that a compiler has at the lowest priority, before it is run at the usual one.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        delay: float = _DELAY,
        patience: float = _LOW_PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.arrived = 0
        self.problem: str | None = None
        self.watchers: list[Callable[[], None]] = []
        self._delay = delay
        self._patience = patience
        self._clock = clock
        self._mode: str | None = None
        self._known: dict[str, Library] = {}
        self._waiting: deque[Library] = deque()
        self._lock = threading.RLock()
        # Notified when the compiling thread, which waits for the end of the delay, must check again whether to begin.
        self._bell = threading.Condition(self._lock)
        # The time of the first request for a library to be compiled, from which the delay counts.
        self._first: float | None = None
        self._thread: threading.Thread | None = None
        self._compilation: Compilation | None = None
        self._ending = False

    @property
    def mode(self) -> str:
        """One of `MODES`."""
        if self._mode is None:
            self._mode = {"0": "off", "1": "wait"}.get(os.environ.get("VMFLOW_JIT", ""), "background")
        return self._mode

    @mode.setter
    def mode(self, value: str) -> None:
        if value not in MODES:
            raise ValueError(f"codegen: the mode is one of {', '.join(MODES)}, not {value!r}")
        self._mode = value
        self._changed()

    def request(self, source: str, make: bool = True, apart: bool = False) -> Library | None:
        """Return the library of a C source, and, if `make`, have it compiled if it is not cached.

        None in the mode "off", and if the library is to be compiled, but its compilation has failed.  Only in the mode
        "wait" this waits for the compiler; otherwise the library may be loaded later.

        Args:
            source: the C source.
            make: whether to compile the library if it is not cached; in the mode "wait" this is always done.
            apart: see `Library`; for a library that needs more of the system than others.
        """
        if self.mode == "off":
            return None
        with self._lock:
            library = self._known.get(source)
            if library is None:
                library = Library(source, apart)
                # Other threads see the library only after this attempt: one that saw it not yet loaded would make it
                # `late`.
                self._from_cache(library)
                self._known[source] = library
        if not make and self.mode != "wait":
            return library
        with self._lock:
            if not library.begun:
                library.begun = True
                if not library.settled.is_set():
                    self._first = self._clock() if self._first is None else self._first
                    self._waiting.append(library)
        if self.mode == "wait":
            self._hurry()
        self._ensure_thread()
        if self.mode == "wait" and not self._ending:
            self._wait_for(library)
        return None if library.settled.is_set() and library.loaded is None else library

    def loaded(self) -> int:
        """The number of loaded libraries."""
        with self._lock:
            return len([library for library in self._known.values() if library.loaded is not None])

    def pending(self) -> int:
        """Return the number of libraries that are being compiled, or are queued."""
        with self._lock:
            return len(self._waiting)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait for all compilations requested so far, and let all functions of loaded libraries be used from now on.

        The queued libraries are compiled at the usual priority, even if the wait times out.

        Args:
            timeout: the longest wait for the compiling thread, in seconds; None for no limit.

        Returns:
            Whether none of these libraries is left to compile.
        """
        with self._lock:
            libraries = [library for library in self._known.values() if library.begun]
            self._hurry()
        self._ensure_thread()
        deadline = None if timeout is None else time.monotonic() + timeout
        done = all([self._wait_for(library, deadline) for library in libraries])
        with self._lock:
            for library in self._known.values():
                library.late = False
        self._changed()
        return done

    def _changed(self) -> None:
        self.arrived += 1
        for watcher in self.watchers:
            watcher()
        GENERATION.advance()

    # Compiling them

    def _hurry(self) -> None:
        """Let all queued libraries be compiled now and at the usual priority, since a thread waits for them."""
        with self._lock:
            for library in self._waiting:
                library.urgent = True
            if self._compilation is not None and self._compilation.low:
                # Raising the running compiler's priority would need a privilege; so it is stopped and started again.
                self._compilation.stop()
            self._bell.notify_all()

    def _too_early(self, library: Library) -> bool:
        """Whether `library` is not urgent, and the delay after the first request was not over; if so, this has waited,
        with the lock released.
        """
        left = 0.0 if self._first is None else self._first + self._delay - self._clock()
        if library.urgent or left <= 0:
            return False
        self._bell.wait(left)
        return True

    def _ensure_thread(self) -> None:
        with self._lock:
            if self._waiting and not self._at_work() and not self._ending:
                thread = threading.Thread(target=self._work, name="vmflow-codegen", daemon=True)
                # If there is no memory for a thread, the next request tries to start it again.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def _at_work(self) -> bool:
        """Whether another thread is compiling; it is asked if it is alive, since lack of memory may have ended it."""
        thread = self._thread
        return thread is not None and thread.is_alive() and thread is not threading.current_thread()

    def _take_over(self) -> bool:
        """Make the calling thread the compiling thread unless another one is; returns whether it is now."""
        with self._lock:
            if self._at_work():
                return False
            self._thread = threading.current_thread()
            return True

    def _wait_for(self, library: Library, deadline: float | None = None) -> bool:
        """Wait until the library is settled, the process is ending, or `deadline`, a time of `time.monotonic`, is over.

        Returns whether the library is settled.  Without a compiling thread, this thread compiles, even past `deadline`.
        """
        while not library.settled.is_set() and not self._ending:
            if self._take_over():
                self._work()
                continue
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left <= 0:
                break
            library.settled.wait(left)
        return library.settled.is_set()

    def _work(self) -> None:
        """Compile the queued libraries until none is left, or the process ends; only the thread `_thread` runs this."""
        me = threading.current_thread()
        try:
            while True:
                with self._lock:
                    if not self._waiting or self._ending or self._thread is not me:
                        # Still under the lock under which the queue was empty, so that the next request sees that no
                        # thread is compiling, and starts one.
                        self._leave(me)
                        return
                    library = self._waiting[0]
                    if self._too_early(library):
                        continue
                try:
                    self._make(library)
                finally:
                    library.settled.set()
                    with self._lock:
                        self._waiting.remove(library)
        finally:
            with self._lock:
                self._leave(me)

    def _leave(self, thread: threading.Thread) -> None:
        if self._thread is thread:
            self._thread = None

    def _make(self, library: Library) -> None:
        if self.problem is not None:
            return
        # The lock delays forks until the imports are over: a child would have half-imported modules, whose locks
        # nobody releases.
        with self._lock:
            import shutil  # noqa: F401 (imported here under the lock, like subprocess, for `Compilation.run`)
            import subprocess  # noqa: F401
            import tempfile

            from .cache import cache_folder, store
            from .compiling import CompileError, compiler_command

            with suppress(OSError), tempfile.TemporaryDirectory(prefix="vmflow-"):
                pass  # the first use of tempfile chooses the folder for temporary files, with a lock of its own

        try:
            command = compiler_command()
            made = self._compile(command, library)
            with cache_folder() as folder:
                self._load(library, folder.place(store(folder, self._key(command, library.source), made)))
        except (CompileError, OSError, MemoryError) as error:
            self._give_up(library, error)

    def _compile(self, command: tuple[str, ...], library: Library) -> bytes:
        """Compile a library, at the lowest priority unless it is urgent; return its bytes.

        If a thread begins to wait, or this takes too long, start again at the usual priority.
        """
        from .compiling import PATIENCE, Compilation, Stopped

        while True:
            with self._lock:
                compilation = Compilation(command, library.source, low=not library.urgent)
                self._compilation = compilation
                if self._ending:
                    compilation.stop()
            try:
                return compilation.run(self._patience if compilation.low else PATIENCE)
            except Stopped:
                if self._ending or not compilation.low:
                    raise
                library.urgent = True
            finally:
                self._compilation = None

    def _from_cache(self, library: Library) -> None:
        """Load the library if the cache on disk has it for the present compiler.

        The caller holds the lock, which delays forks during the imports, as in `_make`.
        """
        import shlex  # noqa: F401
        import shutil  # noqa: F401

        from .cache import cache_folder, find
        from .compiling import CompileError, compiler_command

        with suppress(CompileError, OSError):
            key = self._key(compiler_command(), library.source)
            with cache_folder() as folder:
                name = find(folder, key)
                if name is not None:
                    self._load_found(library, folder, name)

    def _load_found(self, library: Library, folder: Folder, name: str) -> None:
        from .cache import remove

        path = folder.place(name)
        try:
            self._load(library, path)
            library.settled.set()
        except OSError as error:
            message = str(error).replace(path, "")
            # A file that the system cannot load is removed, unless only memory was missing: then it may be intact.
            if "alloc" not in message and "map" not in message:
                remove(folder, name)

    def _key(self, command: tuple[str, ...], source: str) -> str:
        from .cache import cache_key
        from .compiling import compiler_identity, flags, processor_identity

        return cache_key(source, " ".join(flags()), compiler_identity(command), processor_identity())

    def _load(self, library: Library, path: str) -> None:
        library.loaded = ctypes.CDLL(path)
        self.arrived += 1
        GENERATION.advance()

    def _give_up(self, library: Library, error: Exception) -> None:
        if self._ending:
            return
        import logging

        from .compiling import NoCompiler

        # A missing compiler is logged as information only, unless the user has set CC or waits for C kernels.
        missing = isinstance(error, NoCompiler)
        level = logging.WARNING if "CC" in os.environ or self.mode == "wait" or not missing else logging.INFO
        log = logging.getLogger("vmflow.codegen")
        if library.apart and not missing:
            log.log(level, "C kernels compute in one thread, without the library for threads: %s", error)
            return
        if isinstance(error, MemoryError):
            log.log(level, "a C kernel is not compiled for lack of memory; numpy computes instead")
            return
        self.problem = str(error)
        log.log(level, "no C kernels are compiled, numpy computes instead: %s", self.problem)

    # Other processes, and the end of this one

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork(self) -> None:
        self._lock.release()

    def in_child(self) -> None:
        """Reset the locks and the compiling thread in a forked child, where the next request starts a new thread."""
        self._lock = threading.RLock()
        self._bell = threading.Condition(self._lock)
        self._thread = self._compilation = None

    def end(self) -> None:
        """Stop compiling, since the process is ending."""
        with self._lock:
            self._ending = True
            thread = self._thread
            if self._compilation is not None:
                self._compilation.stop()
            self._bell.notify_all()
        if thread is not None:
            thread.join(_GRACE)


LOADER: Final = Loader()

os.register_at_fork(before=LOADER.before_fork, after_in_parent=LOADER.after_fork, after_in_child=LOADER.in_child)
atexit.register(LOADER.end)
