"""Tracebacks of deferred errors: every tool that reads one finds the instruction, its line and its columns."""

from __future__ import annotations

import dis
import io
import pdb
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import pytest

from tests.deferred_errors import (
    PROGRAMS,
    a_graph,
    a_kernel_with_a_cause,
    an_op,
    backward,
    line_that_looks,
    no_memory,
    places_to_blame,
    raised_by,
    serving,
)
from tests.vm.gates import call, line_of
from vmflow.instructions.failure import Failure

pytestmark = pytest.mark.host

programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and those that it was raised from or while handling."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def entries(error: BaseException) -> Iterator[TracebackType]:
    """The entries of the tracebacks of the chain."""
    for each in chain(error):
        trace = each.__traceback__
        while trace is not None:
            yield trace
            trace = trace.tb_next


@programs
def test_each_entry_names_an_instruction_of_its_code_on_its_line(program: Callable[[], None]) -> None:
    """Tools that search for the instruction, as IPython's does, would otherwise search for ever."""
    found = list(entries(raised_by(program)))
    assert found
    for entry in found:
        code = entry.tb_frame.f_code
        offsets = [instruction.offset for instruction in dis.get_instructions(code, show_caches=True)]
        assert entry.tb_lasti in offsets, code
        positions = list(code.co_positions())
        assert len(positions) == len(code.co_code) // 2
        assert positions[entry.tb_lasti // 2][0] == entry.tb_lineno, code
        entry.tb_frame.f_locals  # noqa: B018 (reading it must not crash)


@programs
def test_python_shows_the_line_that_looked_and_the_one_to_blame(program: Callable[[], None]) -> None:
    text = "".join(traceback.format_exception(raised_by(program)))
    assert line_that_looks(program) in text
    blamed = places_to_blame(program)
    assert not blamed or any([place in text for place in blamed]), text


def kernel(*given: Any) -> Any:
    numbers = [1, 2]
    return len(given) + numbers[7] + 1  # the failing line


def by_cells(scale: int) -> Callable[..., Any]:
    hidden = [1]

    def kernel(*given: Any, more: int = 3) -> Any:
        return scale + (hidden[more] + 1)  # the line with cells

    return kernel


def failing_generator(*given: Any) -> Any:
    def numbers(begin: int) -> Iterator[int]:
        yield begin
        yield given[9]  # the line of a generator

    return list(numbers(1))


@pytest.mark.parametrize(
    ("function", "mark", "marked"),
    [
        (kernel, "the failing line", "numbers[7]"),
        (by_cells(2), "the line with cells", "hidden[more]"),
        (failing_generator, "the line of a generator", "given[9]"),
    ],
)
def test_the_columns_are_those_of_the_failed_call(function: Callable[..., Any], mark: str, marked: str) -> None:
    error = raised_by(lambda: call(function).item())
    *_, entry = entries(error)
    code = entry.tb_frame.f_code
    line, end_line, column, end_column = list(code.co_positions())[entry.tb_lasti // 2]
    assert line == end_line == entry.tb_lineno == line_of(mark, __file__)
    with open(__file__) as source:
        text = source.read().splitlines()[line - 1]
    assert text[column:end_column] == marked
    assert "^^^" in "".join(traceback.format_exception(error))


def test_a_traceback_that_is_kept_twice_stays_the_same() -> None:
    first = raised_by(lambda: call(by_cells(2)).item())
    *_, before = entries(first)
    Failure(first).observed = True
    *_, after = entries(first)
    assert before is not after
    assert before.tb_lasti == after.tb_lasti
    assert before.tb_frame.f_code.co_code == after.tb_frame.f_code.co_code
    assert list(before.tb_frame.f_code.co_positions()) == list(after.tb_frame.f_code.co_positions())


@pytest.mark.parametrize("line", [1, 40, 2_000, 3_000_000])
@pytest.mark.parametrize("last", [-1, -2])
def test_an_entry_of_a_compiled_module_has_its_line_and_no_instruction(line: int, last: int) -> None:
    error = ValueError("planted")
    try:
        raise error
    except ValueError:
        frame = sys._getframe()
    Failure(error.with_traceback(TracebackType(None, frame, last, line))).observed = True
    (entry,) = entries(error)
    assert entry.tb_lineno == line
    assert entry.tb_lasti == 0
    assert next(iter(entry.tb_frame.f_code.co_positions()))[0] == line
    assert f"line {line}, in test_an_entry" in "".join(traceback.format_exception(error))


def test_more_cells_than_one_byte_counts() -> None:
    names = [f"cell_{number}" for number in range(300)]
    program = (
        f"def outer():\n    {' = '.join(names)} = [1]\n"
        f"    def kernel(*given):\n        return {' + '.join(f'{name}[0]' for name in names)} + cell_0[9]\n"
        "    return kernel\n"
    )
    space: dict[str, Any] = {}
    exec(program, space)
    error = raised_by(lambda: call(space["outer"]()).item())
    *_, entry = entries(error)
    assert entry.tb_lineno == 4
    assert entry.tb_lasti == 0


def test_the_locals_of_a_frame_are_not_kept() -> None:
    error = raised_by(a_kernel_with_a_cause)
    kept = [entry for entry in entries(error) if entry.tb_frame.f_code.co_name in ("kernel", "inner")]
    assert len(kept) == 4  # one is the op's own, around the function
    for entry in kept:
        assert entry.tb_frame.f_locals == {}
        assert entry.tb_frame.f_back is None


def test_post_mortem_debugging_goes_up_and_down(monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised_by(lambda: call(by_cells(2)).item())
    said = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("where\nlist\nlonglist\nargs\nup\nlist\ndown\np scale\nquit\n"), stdout=said)
    debugger.use_rawinput = False
    debugger.reset()
    debugger.interaction(None, error.__traceback__)
    text = said.getvalue()
    assert f"({line_of('the line with cells', __file__)})kernel()" in text
    assert "->         return scale" in text.replace("\t", "    ") or "  ->\t" in text
    assert "NameError" in text


def test_a_disassembly_points_at_the_instruction() -> None:
    error = raised_by(lambda: call(kernel).item())
    *_, entry = entries(error)
    said = io.StringIO()
    dis.disassemble(entry.tb_frame.f_code, entry.tb_lasti, file=said)
    (pointed,) = [line for line in said.getvalue().splitlines() if "-->" in line]
    assert "BINARY_SUBSCR" in pointed or "BINARY_OP" in pointed


@pytest.mark.parametrize("program", [no_memory, backward, a_graph, a_kernel_with_a_cause])
@pytest.mark.parametrize("style", ["long", "short", "line", "native", "no"])
@pytest.mark.parametrize("showlocals", [False, True])
def test_pytest_formats_it(program: Callable[[], None], style: Any, showlocals: bool) -> None:
    error = raised_by(program)
    information = pytest.ExceptionInfo.from_exception(error)
    text = str(information.getrepr(style=style, showlocals=showlocals, funcargs=True))
    if style in ("long", "short", "native"):
        assert line_that_looks(program) in text
    assert str(error).splitlines()[0] in text or style == "no"


# It cannot show a TimeoutError, nor a frame whose arguments were deleted, wherever they come from.
@pytest.mark.parametrize("program", [an_op, backward, a_graph, serving, a_kernel_with_a_cause])
@pytest.mark.filterwarnings("ignore:'cgitb':DeprecationWarning")
def test_cgitb_formats_it(program: Callable[[], None]) -> None:
    cgitb = pytest.importorskip("cgitb", reason="removed from Python 3.13")
    error = raised_by(program)
    text = cgitb.text((type(error), error, error.__traceback__))
    assert line_that_looks(program).partition("  #")[0] in text


@programs
def test_executing_and_stack_data_end(program: Callable[[], None]) -> None:
    stack_data = pytest.importorskip("stack_data", reason="comes with IPython, which may be missing")
    executing = pytest.importorskip("executing", reason="comes with IPython, which may be missing")
    error = raised_by(program)
    begin = time.perf_counter()
    for each in chain(error):
        text = "".join(stack_data.Formatter(pygmented=False, show_variables=True).format_exception(each))
        assert str(each) in text
    nodes = [executing.Source.executing(entry).node for entry in entries(error)]
    assert time.perf_counter() - begin < 5
    assert nodes


def test_executing_finds_the_very_node() -> None:
    executing = pytest.importorskip("executing", reason="comes with IPython, which may be missing")
    for function, wanted in ((kernel, "numbers[7]"), (by_cells(2), "hidden[more]")):
        error = raised_by(lambda function=function: call(function).item())  # type: ignore[misc]
        *_, entry = entries(error)
        found = executing.Source.executing(entry)
        assert found.text() == wanted


def test_rich_formats_it() -> None:
    rich = pytest.importorskip("rich.traceback", reason="rich is not installed")
    console = pytest.importorskip("rich.console").Console(file=io.StringIO(), width=120)
    for program in (an_op, a_kernel_with_a_cause):
        error = raised_by(program)
        console.print(rich.Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True))
        assert line_that_looks(program).partition("(")[0] in console.file.getvalue()
