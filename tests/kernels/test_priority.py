"""Compilers leave the cores to computations: one at a time, at the lowest priority, and none in the first second."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import vmflow as flow
from vmflow.kernels.native.compiling import Compilation, CompileError, Stopped, compiler_command
from vmflow.kernels.native.loading import LOADER, Loader

pytestmark = pytest.mark.host

SOURCE = "#include <stdint.h>\nvoid answer(int64_t *to) { *to = 42; }\n"

# A script's report on its own process, as a child that it has started sees it.
TELLS = f"{sys.executable} -S -c 'import os; print(os.nice(0), getattr(os, \"sched_getscheduler\", int)(0))'"


@pytest.fixture(autouse=True)
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a compiler, a place for kernels, and nothing in it."""
    monkeypatch.setenv("VMFLOW_CACHE_DIR", str(tmp_path))
    try:
        compiler_command()
    except CompileError as error:
        pytest.skip(str(error))
    if os.nice(0) == 19:
        pytest.skip("the tests have the lowest priority themselves")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets CC to a script that does something and then compiles."""
    usual = " ".join(compiler_command())

    def install(text: str) -> None:
        script = tmp_path / "compiler"
        script.write_text(f'#!/bin/sh\n{text}\nexec {usual} "$@"\n')
        script.chmod(0o700)
        monkeypatch.setenv("CC", str(script))

    return install


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe: opening it for reading waits for a writer, and the other way round."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def _loader(delay: float = 0.0, patience: float = 3600.0, mode: str = "background") -> Loader:
    loader = Loader(delay, patience)
    loader.mode = mode
    return loader


def _blocked_while_low(log: Path, gate: Path) -> str:
    """For a script: it notes its priority, and at the lowest one waits at the gate, as if it got no turn."""
    return f'nice >> {log}\nif [ "$(nice)" = 19 ]; then sh -c "read line < {gate}"; fi'


def test_in_the_background_the_priority_is_the_lowest(tmp_path: Path, compiler: Callable[[str], None]) -> None:
    compiler(f"{TELLS} >> {tmp_path}/log")
    library = _loader().request(SOURCE)
    assert library is not None
    assert library.settled.wait(60)
    assert library.loaded is not None
    assert (tmp_path / "log").read_text().split() == ["19", str(getattr(os, "SCHED_IDLE", 0))]


@pytest.mark.parametrize("how", ["the mode", "settle"])
def test_a_waiting_thread_has_it_compiled_at_the_usual_priority(
    how: str, tmp_path: Path, compiler: Callable[[str], None]
) -> None:
    compiler(f"{TELLS} >> {tmp_path}/log")
    loader = _loader(delay=3600.0, mode="wait" if how == "the mode" else "background")
    library = loader.request(SOURCE)
    assert loader.pending() == (how == "settle")
    assert loader.settle(60)
    assert library is not None
    assert library.loaded is not None
    usual = [os.nice(0), os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else 0]
    assert (tmp_path / "log").read_text().split() == [str(value) for value in usual]


def test_nothing_is_compiled_in_the_first_second(tmp_path: Path, compiler: Callable[[str], None]) -> None:
    now, waits, heard = [100.0], list[float | None](), threading.Event()

    class Bell(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            heard.set()
            return super().wait()

    compiler(f"echo begun >> {tmp_path}/log")
    loader = Loader(clock=lambda: now[0])
    loader.mode = "background"
    loader._bell = Bell(loader._lock)
    library = loader.request(SOURCE)
    assert heard.wait(60)
    now[0] += 0.25
    heard.clear()
    with loader._lock:
        loader._bell.notify_all()
    assert heard.wait(60)
    assert waits == [1.0, 0.75]
    assert not (tmp_path / "log").exists()
    now[0] += 0.75
    with loader._lock:
        loader._bell.notify_all()
    assert library is not None
    assert library.settled.wait(60)
    # Later requests are compiled without a delay.
    other = loader.request(SOURCE + "\n")
    assert other is not None
    assert other.settled.wait(60)
    assert waits == [1.0, 0.75]
    assert (tmp_path / "log").read_text().split() == ["begun"] * 2


def test_without_a_turn_for_long_it_gets_the_usual_priority(
    tmp_path: Path, compiler: Callable[[str], None], gate: Path
) -> None:
    compiler(_blocked_while_low(tmp_path / "log", gate))
    library = _loader(patience=0.5).request(SOURCE)
    assert library is not None
    assert library.settled.wait(60)
    assert library.loaded is not None
    assert (tmp_path / "log").read_text().split() == ["19", str(os.nice(0))]
    # The processes that the first one had started are gone, too.
    while _is_read(gate):
        os.sched_yield()


def _is_read(gate: Path) -> bool:
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_waiting_restarts_the_compiler_at_the_usual_priority(
    tmp_path: Path, compiler: Callable[[str], None], gate: Path
) -> None:
    compiler(_blocked_while_low(tmp_path / "log", gate))
    loader = _loader()
    library, other = loader.request(SOURCE), loader.request(SOURCE + "\n")
    with gate.open("w"):  # opened once it is blocked
        assert not loader.settle(0)
        assert loader.settle(60)
    assert library is not None
    assert other is not None
    assert library.loaded is not None
    assert other.loaded is not None
    assert (tmp_path / "log").read_text().split() == ["19", *[str(os.nice(0))] * 2]


def test_one_compiler_at_a_time(tmp_path: Path, compiler: Callable[[str], None]) -> None:
    usual = " ".join(compiler_command())
    compiler(
        f'mkdir {tmp_path}/running || echo two >> {tmp_path}/log\n{usual} "$@"\nrmdir {tmp_path}/running\nexit 0\n'
    )
    loader = _loader()
    sources = [SOURCE + "\n" * number for number in range(4)]
    askers = [threading.Thread(target=loader.request, args=(source,)) for source in sources]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)
    libraries = [loader.request(source) for source in sources]
    for library in libraries:
        assert library is not None
        assert library.settled.wait(60)
        assert library.loaded is not None
    assert not (tmp_path / "log").exists()


def test_a_compiler_that_fails_is_not_run_again(tmp_path: Path, compiler: Callable[[str], None]) -> None:
    compiler(f"echo begun >> {tmp_path}/log; echo it is broken >&2; exit 1")
    loader = _loader()
    library = loader.request(SOURCE)
    assert library is not None
    assert library.settled.wait(60)
    assert loader.problem is not None
    assert "failed with 1: it is broken" in loader.problem
    assert (tmp_path / "log").read_text().split() == ["begun"]


def test_a_compilation_that_was_stopped_before_is_not_run(tmp_path: Path, compiler: Callable[[str], None]) -> None:
    compiler(f"echo begun >> {tmp_path}/log")
    compilation = Compilation(compiler_command(), SOURCE)
    compilation.stop()
    with pytest.raises(Stopped, match="was stopped"):
        compilation.run()
    assert not (tmp_path / "log").exists()


def test_a_sentence_names_the_libraries_being_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    monkeypatch.setattr(LOADER, "pending", lambda: 3)
    assert flow.backends.codegen.pending() == 3
    monkeypatch.setattr(LOADER, "problem", None)
    assert flow.backends.codegen.wait(60, say=said.append)
    (sentence,) = said
    assert sentence.startswith("compiling 3 libraries of C kernels with ")
    assert f"kept in {tmp_path}/kernels" in sentence
    monkeypatch.setattr(LOADER, "pending", lambda: 0)
    assert flow.backends.codegen.wait(60, say=said.append)
    assert said == [sentence]
