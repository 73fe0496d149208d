"""Compiling, keeping and loading: compilers that do not work, files that are broken, other processes."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import vmflow as flow
from tests.support import run_program
from vmflow import info
from vmflow.kernels.native import cache
from vmflow.kernels.native.compiling import CompileError, compiler_command
from vmflow.kernels.native.loading import LOADER, Library, Loader

pytestmark = pytest.mark.host

ROOT = Path(flow.__file__).parent.parent

SOURCE = "#include <stdint.h>\nvoid answer(int64_t *to) { *to = 42; }\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for kernels, and none there yet."""
    monkeypatch.setenv("VMFLOW_CACHE_DIR", str(tmp_path))
    return tmp_path / "kernels"


@pytest.fixture
def works() -> None:
    """There is a compiler."""
    try:
        compiler_command()
    except CompileError as error:
        pytest.skip(str(error))


def _loader(mode: str = "wait") -> Loader:
    loader = Loader()
    loader.mode = mode
    return loader


def _answer(library: Library | None) -> int:
    assert library is not None
    found = np.zeros(1, np.int64)
    library.function("answer")(found.ctypes)
    return int(found[0])


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets CC to a script."""

    def install(text: str) -> None:
        script = tmp_path / "compiler"
        script.write_text("#!/bin/sh\n" + text)
        script.chmod(0o700)
        monkeypatch.setenv("CC", str(script))

    return install


def test_waiting_for_the_compiler(folder: Path, works: None) -> None:
    loader = _loader()
    assert _answer(loader.request(SOURCE)) == 42
    assert loader.problem is None
    assert loader.arrived > 0


def test_in_the_background(folder: Path, works: None, compiler: Callable[[str], None], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    compiler(f'read line < {gate}\nexec cc "$@"\n')
    loader = _loader("background")
    library = loader.request(SOURCE)
    assert library is not None
    assert library.loaded is None
    assert not library.usable(exact=True)
    gate.write_text("go\n")
    assert library.settled.wait(60)
    # A library that arrives after a failed lookup is used only if results do not change.
    assert library.usable(exact=True)
    assert not library.usable(exact=False)
    assert loader.settle(60)
    assert library.usable(exact=False)
    assert _answer(library) == 42


def test_off(folder: Path) -> None:
    assert _loader("off").request(SOURCE) is None
    assert not folder.exists()


def test_modes() -> None:
    with pytest.raises(ValueError, match="one of off, background, wait"):
        _loader("on")
    loader = Loader()
    assert loader.mode in ("off", "background", "wait")


@pytest.mark.parametrize(("value", "mode"), [("0", "off"), ("1", "wait"), ("", "background"), ("2", "background")])
def test_the_variable(value: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_JIT", value)
    assert Loader().mode == mode


# Compilers that do not work


def test_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("CC", "/nonexistent")
    loader = _loader()
    with caplog.at_level(logging.INFO):
        assert loader.request(SOURCE) is None
        assert loader.request(SOURCE + "\n") is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "CC=/nonexistent names no program" in record.getMessage()


@pytest.mark.parametrize("mode", ["wait", "background"])
def test_a_compiler_whose_command_cannot_be_split_is_reported(
    mode: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", 'gcc "')
    loader = _loader(mode)
    loader.request(SOURCE)
    loader.settle(60)
    (record,) = caplog.records
    assert 'CC=gcc " cannot be split into words: No closing quotation' in record.getMessage()


def test_no_compiler_where_nobody_asked_for_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    loader = _loader("background")
    with caplog.at_level(logging.INFO):
        loader.request(SOURCE)
        loader.settle(60)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "no C compiler was found (cc, gcc, clang)" in record.getMessage()


def test_a_blank_name_of_the_compiler_counts_as_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", " ")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(CompileError, match=r"no C compiler was found \(cc, gcc, clang\)"):
        compiler_command()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("echo it is broken >&2; exit 1\n", "failed with 1: it is broken", id="fails"),
        pytest.param("exit 0\n", "wrote no library", id="does nothing"),
        pytest.param('while [ "$1" != -o ]; do shift; done; echo garbage > "$2"\n', "file too short|ELF", id="garbage"),
        pytest.param("kill -9 $$\n", "failed with -9", id="dies"),
    ],
)
def test_broken_compilers(
    script: str, reason: str, folder: Path, compiler: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    compiler(script)
    loader = _loader()
    assert loader.request(SOURCE) is None
    assert loader.problem is not None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    # Its leftovers are not taken for a kernel.
    assert _loader().request(SOURCE) is None
    assert re.search(reason, loader.problem)


def test_a_source_that_may_fail_takes_no_other_with_it(
    folder: Path, works: None, caplog: pytest.LogCaptureFixture
) -> None:
    loader = _loader()
    assert loader.request("#error what this system has not\n", apart=True) is None
    (record,) = caplog.records
    assert "compute in one thread" in record.getMessage()
    assert loader.problem is None
    assert _answer(loader.request(SOURCE)) == 42


@pytest.mark.parametrize("mode", ["wait", "background"])
def test_where_no_thread_can_be_had_nobody_waits_for_one(
    mode: str, folder: Path, works: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loader = _loader(mode)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_memory)
        library = loader.request(SOURCE)
        assert library is not None
        assert library.settled.is_set() == (mode == "wait")
        assert loader.settle(60)
    assert _answer(loader.request(SOURCE)) == 42


def test_where_a_thread_ends_as_it_begins_another_one_is_had(
    folder: Path, works: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = _loader("background")
    with monkeypatch.context() as patch:
        patch.setattr(loader, "_work", lambda: None)
        library = loader.request(SOURCE)
        assert loader._thread is not None
        loader._thread.join()
    assert library is not None
    assert not library.settled.is_set()
    assert not loader.settle(0)
    loader.mode = "wait"
    assert _answer(loader.request(SOURCE)) == 42


def test_one_thread_compiles_for_all_requests(folder: Path, works: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first could not be started, so that the first requester compiles; others make requests meanwhile."""
    loader, start = _loader(), threading.Thread.start
    failed: list[threading.Thread] = []

    def fails_once(thread: threading.Thread) -> None:
        if thread.name == "vmflow-codegen" and not failed:
            failed.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fails_once)
    sources = [SOURCE.replace("42", str(number)) for number in range(4)]
    found: dict[int, int] = {}

    def ask(number: int) -> None:
        found[number] = _answer(loader.request(sources[number]))

    askers = [threading.Thread(target=ask, args=(number,)) for number in range(len(sources))]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(60)
    assert found == {number: number for number in range(len(sources))}
    assert loader._thread is None


def test_a_script_that_is_no_program(folder: Path, compiler: Callable[[str], None]) -> None:
    compiler("")
    script = Path(os.environ["CC"])
    script.write_text("#!/nonexistent/interpreter\n")
    loader = _loader()
    assert loader.request(SOURCE) is None
    assert loader.problem is not None
    assert "cannot be run" in loader.problem


def test_programs_run_with_a_broken_compiler(folder: Path, compiler: Callable[[str], None]) -> None:
    compiler("exit 1\n")
    program = """
        import numpy as np
        import vmflow as flow
        class Twice(flow.nn.Graph):
            def build(self, x):
                return (x * 2).tanh() + 1
        graph, x = Twice(), flow.ones(5000)
        for _ in range(3):
            assert np.allclose(graph(x).numpy(), np.tanh(2) + 1)
        print(flow.backends.codegen.is_available(), "failed with 1" in flow.show_config())
    """
    assert _run(program, VMFLOW_JIT="1").stdout.split() == ["False", "True"]


# The cache


def test_compiled_libraries_are_found_again(folder: Path, works: None, compiler: Callable[[str], None]) -> None:
    assert _answer(_loader().request(SOURCE)) == 42
    before = list(folder.iterdir())
    assert len(before) == 1
    # Found immediately, so that no wait is needed.
    again = _loader("background").request(SOURCE)
    assert _answer(again) == 42
    assert again is not None
    assert again.usable(exact=False)
    assert list(folder.iterdir()) == before
    compiler('exec cc "$@"\n')
    assert _answer(_loader().request(SOURCE)) == 42
    assert len(list(folder.iterdir())) == 2  # another compiler, another library


@pytest.mark.parametrize("damage", ["cut off", "garbage", "empty", "changed"])
def test_a_broken_file_is_made_anew(damage: str, folder: Path, works: None) -> None:
    _loader().request(SOURCE)
    (path,) = folder.iterdir()
    data = path.read_bytes()
    path.unlink()  # it is mapped into this process
    broken = {
        "cut off": data[: len(data) // 2],
        "garbage": b"garbage" * 100,
        "empty": b"",
        "changed": data[:4000] + bytes([data[4000] ^ 1]) + data[4001:],
    }
    path.write_bytes(broken[damage])
    assert _answer(_loader().request(SOURCE)) == 42
    (path,) = folder.iterdir()
    assert path.read_bytes()[: len(data) // 2] == data[: len(data) // 2]


def test_a_whole_file_that_is_no_library_is_made_anew(folder: Path, works: None) -> None:
    loader = _loader()
    source = SOURCE + "// loaded by no other test: a loaded library is not loaded again\n"
    key = loader._key(compiler_command(), source)
    with cache.cache_folder() as place:
        assert place.path == str(folder)
        path = folder / cache.store(place, key, b"no library at all")
    assert _answer(loader.request(source)) == 42
    assert path.read_bytes().startswith(b"\x7fELF")


def test_old_libraries_go_first(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.so"
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    with cache.open_folder(str(tmp_path)) as folder:
        cache.trim(folder, 250, keep="0.so")
    assert sorted([value.name for value in tmp_path.iterdir()]) == ["0.so", "4.so"]


def test_no_folder_at_all(tmp_path: Path, works: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VMFLOW_CACHE_DIR", str(tmp_path / "file"))
    assert cache.usable_path() is None
    assert _answer(_loader().request(SOURCE)) == 42


def test_the_usual_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VMFLOW_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.usable_path() == str(tmp_path / "vmflow" / "kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.usable_path() == str(tmp_path / "home" / ".cache" / "vmflow" / "kernels")


# Other processes

PROGRAM = """
    import numpy as np
    import vmflow as flow
    class Function(flow.nn.Graph):
        def build(self, x):
            return (x * 2 + 1).relu() * x
    graph, x = Function(), flow.arange(5000, dtype=flow.float32) - 2500
    expected = np.maximum(x.numpy() * 2 + 1, 0) * x.numpy()
    np.testing.assert_array_equal(graph(x).numpy(), expected)
"""


def _start(program: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def _run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    with _start(program, **environment) as process:
        out, complaint = process.communicate(timeout=100)
    assert process.returncode == 0, complaint
    return subprocess.CompletedProcess(process.args, 0, out, complaint)


@pytest.mark.slow
def test_two_processes_at_once(folder: Path, works: None) -> None:
    program = PROGRAM + "    from vmflow.kernels.native.loading import LOADER\n    print(LOADER.loaded())\n"
    processes = [_start(program, VMFLOW_JIT="1") for _ in range(2)]
    for process in processes:
        with process:
            out, complaint = process.communicate(timeout=100)
        assert process.returncode == 0, complaint
        assert int(out) >= 1
    assert {value.suffix for value in folder.iterdir()} == {".so"}


def test_a_child_compiles_the_libraries_that_its_parent_has_begun(
    folder: Path, works: None, compiler: Callable[[str], None], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # The first compiler waits forever; it is killed with its process.
    compiler(f'if mkdir {tmp_path}/first 2>/dev/null; then read line < {gate}; fi\nexec cc "$@"\n')
    program = """
        import os
        import numpy as np
        from vmflow.kernels.native.loading import LOADER
        source = "#include <stdint.h>\\nvoid answer(int64_t *to) { *to = 42; }\\n"
        library = LOADER.request(source)
        assert library.loaded is None
        while not os.path.exists(os.environ["FIRST"]):
            os.sched_yield()
        child = os.fork()
        if not child:
            LOADER.request(source)
            assert library.settled.wait(60)
            found = np.zeros(1, np.int64)
            library.function("answer")(found.ctypes)
            os._exit(int(found[0]))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = _run(program, VMFLOW_JIT="", FIRST=str(tmp_path / "first"))
    assert done.stdout.split() == ["42"]


def test_nobody_waits_for_the_compiler_at_the_end(
    folder: Path, works: None, compiler: Callable[[str], None], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    compiler(f"read line < {gate}\n")
    # Opening it waits until the compiler reads.
    done = _run(PROGRAM + f"    import os\n    gate = os.open({str(gate)!r}, os.O_WRONLY)\n", VMFLOW_JIT="")
    assert done.stderr == ""
    # Nor for the first second.
    assert _run(PROGRAM, VMFLOW_JIT="").stderr == ""


def test_switched_off_by_the_variable(folder: Path, compiler: Callable[[str], None]) -> None:
    compiler("exit 1\n")
    assert _run(PROGRAM, VMFLOW_JIT="0").stderr == ""
    assert not folder.exists()


# Messages, and the switch


def test_show_config_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = LOADER.mode
    flow.backends.codegen.mode = "off"
    try:
        assert "C kernels not in use: switched off, by VMFLOW_JIT=0" in info.show_config()
        assert not flow.backends.codegen.is_available()
        flow.backends.codegen.mode = "background"
        monkeypatch.setenv("CC", "/nonexistent")
        assert "C kernels not in use: CC=/nonexistent names no program" in info.show_config()
    finally:
        flow.backends.codegen.mode = before


def test_show_config_names_the_compiler(compiled: None) -> None:
    (flow.ones(5000).sigmoid()).numpy()
    kernels = info.collect_info()["kernels"]
    assert kernels["problem"] is None
    assert kernels["libraries"] >= 1
    assert f"libraries loaded, by {kernels['compiler']} (wait)" in info.show_config()


def test_show_config_does_not_say_that_a_queued_library_is_not_needed(
    compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOADER, "loaded", lambda: 0)
    assert "C kernels none loaded so far, by " in info.show_config()


def test_the_switch_is_checked() -> None:
    with pytest.raises(ValueError, match="one of off, background, wait"):
        flow.backends.codegen.mode = "fast"


# When results change


@pytest.mark.slow
def test_inexact_functions_are_computed_in_one_way(
    folder: Path, works: None, compiler: Callable[[str], None], tmp_path: Path
) -> None:
    """A process that begins without kernels keeps numpy's tanh until it waits for ours; both ops and graphs do."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    compiler(f'read line < {gate}\nexec cc "$@"\n')
    program = """
        import os
        import numpy as np
        import vmflow as flow
        from vmflow.kernels.native.loading import LOADER
        class Function(flow.nn.Graph):
            def build(self, x):
                return x.tanh() * 2
        x = flow.tensor(np.linspace(-4, 4, 9001, dtype=np.float32))
        numpys = np.tanh(x.numpy()) * 2
        graph = Function()
        def results():
            return graph(x).numpy(), (x.tanh() * 2).numpy()
        for found in results():
            np.testing.assert_array_equal(found, numpys)
        # For reading, too: the compilers come and go, and a pipe without a reader breaks.
        gate = os.open(os.environ["GATE"], os.O_RDWR)
        os.write(gate, b"go\\n" * 99)
        LOADER._hurry()  # where other programs have the cores, too
        for library in list(LOADER._known.values()):
            assert library.settled.wait(60)
        for found in results():
            np.testing.assert_array_equal(found, numpys)
        flow.backends.codegen.mode = "wait"
        assert flow.backends.codegen.wait(60)
        one, other = results()
        np.testing.assert_array_equal(one, other)
        assert (one != numpys).any()
        np.testing.assert_allclose(one, numpys, rtol=1e-6)
    """
    _run(program, VMFLOW_JIT="", GATE=str(gate))


@pytest.mark.slow
def test_where_temporary_files_go_is_known_before_anybody_may_fork(tmp_path: Path) -> None:
    """It is found out under a lock of a module, which a child forked meanwhile would find held for ever."""
    program = """
    import tempfile
    from vmflow.kernels.native import functions
    from vmflow.kernels.native.compiling import Compilation
    usual = Compilation.run

    def run(*arguments):
        print(tempfile.tempdir is not None)
        return usual(*arguments)

    Compilation.run = run
    assert functions.function("softmax", 1 << 20) is not None
    """
    (tmp_path / "kept").mkdir(mode=0o700)
    assert run_program(program, VMFLOW_JIT="1", VMFLOW_CACHE_DIR=str(tmp_path / "kept")) == "True"
