"""In IPython and in Jupyter's kernel: errors end and show the user's lines, and cells show values."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vmflow as flow
from tests.deferred_errors import PROGRAMS, line_that_looks, places_to_blame, raised_by
from tests.vm.gates import entered
from vmflow.vm.virtual_machine import VirtualMachine

pytest.importorskip("IPython", minversion="9", reason="IPython 9 is not installed")

from IPython.core import ultratb
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

pytestmark = pytest.mark.host

# Seconds in which the error of a cell is shown.  Without an end it was minutes.
SOON = 5.0

NEED_A_THREAD = (
    "awaited",
    "serving",
    "a_cancelled_scope",
    "a_scope_with_a_reason",
    "a_deadline",
    "a_closed_machine",
)

programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


@pytest.fixture(scope="module", autouse=True)
def _looked_at_once() -> None:
    """IPython reads the sources that it shows, and that takes long the first time."""
    error = raised_by(PROGRAMS[0])
    ultratb.VerboseTB().text(type(error), error, error.__traceback__)


@programs
@pytest.mark.parametrize("mode", ["Plain", "Context", "Verbose", "Minimal"])
def test_each_mode_of_ipython_ends_and_shows_the_lines(program: Callable[[], None], mode: str) -> None:
    error = raised_by(program)
    begin = time.perf_counter()
    formatter = ultratb.FormattedTB(mode=mode, theme_name="nocolor")
    text = formatter.stb2text(formatter.structured_traceback(type(error), error, error.__traceback__))
    assert time.perf_counter() - begin < SOON
    assert str(error).splitlines()[0] in text
    if mode in ("Plain", "Context", "Verbose"):
        assert line_that_looks(program) in text
        blamed = places_to_blame(program)
        assert not blamed or any([place in text for place in blamed])


def test_verbose_tracebacks_show_failed_tensors_among_the_variables() -> None:
    bad = flow.ones(2)[flow.tensor([5])]
    error = raised_by(bad.item)
    text = ultratb.VerboseTB(theme_name="nocolor").text(type(error), error, error.__traceback__)
    assert "tensor(..., size=(1,), failed=IndexError(" in text


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """IPython's, as `get_ipython` finds it; afterwards there is none."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    # IPython warns if another environment than the one that runs the tests has been activated.
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    for hook in ("displayhook", "excepthook"):
        monkeypatch.setattr(sys, hook, getattr(sys, hook))
    options = Config()
    options.HistoryManager.enabled = False
    options.InteractiveShell.colors = "nocolor"
    made = InteractiveShell.instance(config=options)
    # A slow machine would otherwise decide which values are there already.
    with entered(VirtualMachine("cells", cpu_worker="always")):
        made.run_cell(
            "import vmflow as flow, asyncio\ndef late(): return flow.randn(300_000).sort().values[:2] * 0 + 2"
        )
        yield made
        made.reset(new_session=False)
    InteractiveShell.clear_instance()


def said_by(shell: InteractiveShell, *cells: str) -> str:
    """The output of cells that run on a running loop, as those of Jupyter do."""

    async def run() -> None:
        for cell in cells:
            result = await shell.run_cell_async(cell, transformed_cell=shell.transform_cell(cell))
            assert result.error_before_exec is None

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        asyncio.run(run())
    return said.getvalue()


VALUE = "tensor([2., 2.])"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("late()", VALUE),
        ("[late(), {'a': late()}]", f"[{VALUE}, {{'a': {VALUE}}}]"),
        ("print(late())", VALUE),
        ("f'{late()}'", VALUE),
        ("flow.stack([late()]).sort()", "values=tensor([[2., 2.]]), indices=tensor([[0, 1]]"),
        ("await asyncio.sleep(0)\nlate()", VALUE),
        ("flow.nn.Parameter(late())", "Parameter containing:\n" + VALUE[:-1]),
        ("late()[flow.tensor([5])]", "tensor(..., size=(1,), failed=IndexError("),
        ("[late()[flow.tensor([5])], late()]", VALUE),
    ],
)
def test_a_cell_shows_the_value_and_not_that_it_is_pending(shell: InteractiveShell, cell: str, shown: str) -> None:
    said = said_by(shell, cell)
    assert shown in said
    assert "pending" not in said


@pytest.mark.parametrize(
    "cell",
    [
        "async def task(): print(late())\nawait asyncio.create_task(task())",
        "asyncio.get_running_loop().call_soon(lambda: print(late()))\nawait asyncio.sleep(0)\nawait asyncio.sleep(0)",
    ],
)
def test_tasks_that_a_cell_has_started_do_not_block_the_loop(shell: InteractiveShell, cell: str) -> None:
    said = said_by(shell, cell)
    assert "tensor(..., size=(2,), pending)" in said
    assert said_by(shell, "await flow.synchronize()", "late()").strip().endswith(VALUE)


@pytest.mark.parametrize("mode", ["Plain", "Context", "Verbose", "Minimal"])
def test_a_cell_that_fails_ends_and_the_next_one_runs(shell: InteractiveShell, mode: str) -> None:
    shell.run_line_magic("xmode", mode)
    begin = time.perf_counter()
    said = said_by(
        shell,
        "loss = flow.nn.functional.cross_entropy(flow.randn(3, 4), flow.tensor([1, 2, 9]))\nloss.item()",
        "loss",
        "late()",
    )
    assert time.perf_counter() - begin < SOON
    assert "IndexError: cross_entropy: class index 9 is out of range for 4 classes" in said
    assert "failed=IndexError('cross_entropy: class index 9" in said
    if mode != "Minimal":
        assert "loss.item()" in said
        assert re.search(r"issued at .*:1, in <module>", said)
    assert VALUE in said


def test_a_plain_cell_without_a_loop_waits_as_scripts_do(shell: InteractiveShell) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        shell.run_cell("late()")
    assert VALUE in said.getvalue()


# Jupyter's kernel, a process that is spoken to over sockets


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    manager = pytest.importorskip("jupyter_client.manager", reason="jupyter_client is not installed")
    folder = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(folder))
        patch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        kernel = manager.KernelManager(
            kernel_name="python3", transport="ipc", connection_file=str(folder / "kernel.json")
        )
        kernel.start_kernel(cwd=str(Path(__file__).resolve().parents[1]))
    client = kernel.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield client
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


def answer_of(client: Any, cell: str) -> tuple[str, str]:
    """The output of a cell, and the traceback of its error."""
    shown: list[str] = []
    trace: list[str] = []

    def hear(message: Any) -> None:
        content = message["content"]
        shown.append(content.get("data", {}).get("text/plain", "") or content.get("text", ""))
        trace.extend(content.get("traceback", ()))

    client.execute_interactive(cell, timeout=60, output_hook=hear, store_history=False)
    return "".join(shown), re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(trace))


@pytest.mark.slow
def test_jupyters_kernel_ends_every_error_and_shows_the_lines(client: Any) -> None:
    # On a thread, since some run a loop of their own, or hold their machine, and a cell is on the kernel's loop.
    cell = "from tests import deferred_errors as errors\nfrom tests.vm.gates import in_thread"
    assert answer_of(client, cell) == ("", "")
    for program in PROGRAMS:
        for call in (f"errors.{program.__name__}()", f"in_thread(errors.{program.__name__})"):
            if call.startswith("errors") and program.__name__ in NEED_A_THREAD:
                continue
            begin = time.perf_counter()
            _, trace = answer_of(client, call)
            assert time.perf_counter() - begin < SOON, call
            assert line_that_looks(program).partition("  #")[0] in trace
            assert f"1 {call}" in trace
    assert answer_of(client, "1 + 1")[0] == "2"


@pytest.mark.slow
def test_jupyters_kernel_shows_values(client: Any) -> None:
    late = "import vmflow as flow\nlate = lambda: flow.randn(300_000).sort().values[:2] * 0 + 2\n"
    assert answer_of(client, late + "late()") == (VALUE, "")
    assert answer_of(client, "[late(), {'a': late()}]") == (f"[{VALUE}, {{'a': {VALUE}}}]", "")
    assert answer_of(client, "print(late())") == (VALUE + "\n", "")
    assert answer_of(client, "await late()") == (VALUE, "")
    shown, trace = answer_of(client, "late()[flow.tensor([5])]")
    assert shown.startswith("tensor(..., size=(1,), failed=IndexError(")
    assert trace == ""
    shown, trace = answer_of(client, "async def task(): print(late())\nawait __import__('asyncio').create_task(task())")
    assert "pending" in shown
