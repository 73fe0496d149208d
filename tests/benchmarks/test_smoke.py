"""The benchmark programs still run at small sizes, and fill their tables; times are not checked."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.benchmarks.__main__ as benchmarks
import vmflow as flow
from tests.benchmarks import (
    actors,
    codegen,
    endurance,
    graph_calls,
    graph_fusion,
    graph_memory,
    layers,
    layers_sequence,
    loop_lag,
    ops,
    step_profile,
    sweep,
    throughput,
)
from tests.benchmarks.contenders import Company, gathered
from tests.benchmarks.families import FAMILIES, chosen
from tests.benchmarks.family_training import training
from tests.benchmarks.measure import EAGER, GRAPH, Bar, Case, Result, measure
from tests.benchmarks.page import BEGIN, END, split_page
from tests.benchmarks.report import Report
from tests.benchmarks.tables import Table
from vmflow.vm.virtual_machine import VirtualMachine


@pytest.fixture
def machine() -> Iterator[VirtualMachine]:
    machine = VirtualMachine("smoke")
    yield machine
    machine.close()


def _number(table: Table, row: str, column: str) -> float:
    cell = table.rows[row][column]
    assert isinstance(cell, int | float), f"{row!r} has {cell!r} under {column!r}"
    assert math.isfinite(cell)
    return cell


def test_throughput_measures_every_shape(machine: VirtualMachine, tmp_path: Path) -> None:
    contenders: dict[str, throughput.Contender] = {
        "machine": throughput.machine_contender(machine),
        "engine, held": throughput.engine_held,
        "graphlib": throughput.graphlib,
        "asyncio": throughput.asyncio_tasks,
    }
    table, _ = throughput.run(contenders, throughput.Plan({50: 1, 100: 1}, traced=100))
    kinds = (" 50", " 100", ", flatness", ", peak bytes")
    assert set(table.rows) == {shape + kind for shape in throughput.SHAPES for kind in kinds}
    for row in table.rows:
        for contender in contenders:
            assert _number(table, row, contender) > 0
        if not row.endswith("flatness"):
            assert _number(table, row, "machine/asyncio") > 0
        assert table.rows[row]["machine/dask"] is None
    table.write(tmp_path / "table.json", "here", ["there"])
    assert json.loads((tmp_path / "table.json").read_text())["rows"] == table.rows


def test_throughput_leaves_out_what_would_take_too_long() -> None:
    impatient = throughput.Plan({50: 1, 100: 1}, traced=100, patience=0.0)
    table, remarks = throughput.run({"machine": throughput.engine_alone}, impatient)
    assert table.rows["chain 50"]["machine"] is not None
    assert table.rows["chain 100"]["machine"] is None
    assert any(remark.startswith("chain 100: machine left out") for remark in remarks)


@pytest.mark.parametrize("shape", throughput.SHAPES)
def test_graphs_have_the_size_asked_for_and_need_only_what_is_earlier(shape: str) -> None:
    graph = throughput.SHAPES[shape](100)
    assert len(graph) == 100
    assert all(0 <= value < number for number, needed in enumerate(graph) for value in needed)
    assert any(graph)


def test_full_fan_in_has_one_reader_of_all_others() -> None:
    assert throughput.full_fan_in(100) == [()] * 99 + [tuple(range(99))]


def test_loop_lag_observes_every_load_and_contender() -> None:
    table = loop_lag.run(0.02, 1, None, loop_lag.Sizes(chain=50, side=16))
    device = ("vmflow, device",) if flow.cuda.is_available() else ()
    contenders = ("vmflow", *device, "numpy in thread", "vmflow, no loop")
    assert set(table.rows) == {"idle"} | {f"{load}, {contender}" for load in loop_lag.LOADS for contender in contenders}
    for row in table.rows:
        if row != "idle":
            assert _number(table, row, "ops/s") > 0
        if not row.endswith("no loop"):
            for column in ("beats", "p50 ms", "p90 ms", "p99 ms"):
                assert _number(table, row, column) > 0
        if row.endswith(", vmflow"):
            assert _number(table, row, "loss %") < 100


def test_actors_are_timed_next_to_queues() -> None:
    table = actors.run(20, 1)
    assert set(table.rows) == {"chain of 20"}
    for column in ("actors us", "queue us", "ratio"):
        assert _number(table, "chain of 20", column) > 0


def test_endurance_compares_the_end_with_the_start() -> None:
    table = endurance.run(10, 5)
    assert [_number(table, row, "/ numpy") > 0 for row in table.rows] == [True, True]


def test_layers_measures_forward_and_backward() -> None:
    shapes = (layers.Shape("one", (2, 1, 6, 6), 2, 3), layers.Shape("up", (2, 1, 4), 2, 2, 2, transposed=True))
    table = layers.run(shapes, 1, None)
    for shape in shapes:
        assert _number(table, shape.name, "forward ms") > 0
        assert _number(table, shape.name, "both ms") > 0
        assert table.rows[shape.name]["ratio"] is None


def test_c_kernels_are_compared_with_numpys() -> None:
    found = codegen.run(1, True, ["softmax", "Adam,", "chain", "MLP"])
    assert len(found) == 5
    for times in found.values():
        assert {"C", "numpy"} <= times.keys()
        assert min(times.values()) >= 0


def test_training_steps_are_taken_apart() -> None:
    for case in training(Company(numpy=False, quick=True)):
        times = step_profile.profile(case, 1)
        assert times["linear"] > 0
        assert times["step"] >= sum([taken for name, taken in times.items() if name != "step"])


def test_layers_over_sequences_are_timed() -> None:
    for family in (layers_sequence.recurrent, layers_sequence.attention):
        for case in family(None, 2):
            assert all(microsecond > 0 for microsecond in measure(case, 1).microseconds.values())


def test_a_table_refuses_what_it_has_no_place_for() -> None:
    table = Table("name", ["us, each"])
    table.add("first", us__each=1.0)
    with pytest.raises(ValueError, match="a row 'first' already"):
        table.add("first")
    with pytest.raises(ValueError, match=r"\['ms'\] are not among"):
        table.add("second", ms=1.0)
    assert table.rows == {"first": {"us, each": 1.0}}


def test_the_op_table_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["ops", "--quick", "--only", "add,softmax"])
    ops.main()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["add", "softmax"]


def test_every_op_of_the_table_runs() -> None:
    for case in ops.cases(None, 16, list(ops.OPS), 0.0):
        case.contenders["vmflow"]()


def test_the_gains_of_fusing_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["graph_fusion", "--quick"])
    graph_fusion.main()
    printed = capsys.readouterr().out
    assert "chain, 64: fused graph" in printed
    assert "program, fused / program, unfused" in printed
    assert "tiny ops, add: program" in printed


@pytest.mark.host
def test_the_memory_of_graphs_has_a_row_with_checkpointed_blocks_and_one_without() -> None:
    table = graph_memory.run({"MLP": graph_memory.mlp}, rounds=1)
    assert set(table.rows) == {"MLP", "MLP, recomputed, 3 %", "MLP, recomputed, 20 %", "MLP, checkpointed"}
    for row in table.rows:
        assert 0 < _number(table, row, "bound") <= _number(table, row, "planned") < _number(table, row, "no reuse")


def test_the_costs_of_calling_a_graph_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["graph_calls", "--quick"])
    graph_calls.main()
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line[:14].strip() for line in lines] == ["issued", "read", "awaited", "training step", "guard"]
    assert all([" of eager" in line for line in lines[:-1]])
    assert " of call" in lines[-1]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_measures_vmflow_and_whoever_else_takes_part(family: str) -> None:
    count = 0
    # Each case is measured before the next is generated, since the generator may free a case's resources then.
    for case in FAMILIES[family](Company(quick=True)):
        found = measure(case, 1).microseconds
        assert found.keys() == case.contenders.keys()
        assert {EAGER, GRAPH} & found.keys()
        assert all([value > 0 for value in found.values()])
        count += 1
    assert count


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("family", ["tiny", "large", "chain", "training", "optimizer"])
def test_other_libraries_do_the_same_work(family: str, library: str) -> None:
    pytest.importorskip(library)
    taking_part = [case for case in chosen(gathered([library], 1, True), [family]) if library in case.contenders]
    assert taking_part
    for case in taking_part:
        assert measure(case, 1).microseconds[library] > 0


def test_whom_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot compare with caffe; there are numpy, torch, jax"):
        gathered(["numpy", "caffe"], 1, True)


def test_rows_are_chosen_by_family_or_by_name() -> None:
    company = Company(quick=True)
    assert {case.name for case in chosen(company, ["optimizer"])} == {"Adam step, 512 parameters"}
    assert {case.name for case in chosen(company, ["matmul"])} == {"matmul 16 x 16", "matmul 32 x 32"}


def test_a_sweep_has_a_curve_for_each_op_and_way_and_draws_ratios(tmp_path: Path) -> None:
    # A large batch, since a turn has the fewer steps the larger the batch is.
    curves = sweep.run(None, (10, 40), (1024,), 1)
    assert list(curves) == [*sweep.OPS, "MLP step", "MLP step, graph"]
    assert all([set(found) == {10, 40} for name, found in curves.items() if name in sweep.OPS])
    assert sweep.operand("matmul", 40).shape == (6, 6)
    assert sweep.operand("softmax", 4000).shape == (4, 1000)
    pytest.importorskip("matplotlib")
    for found in curves.values():
        for figures in found.values():
            figures["torch"] = 2 * figures[EAGER]
    sweep.draw(curves, "here", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_figures_are_held_against_what_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    bars = (Bar(0.5), Bar(0.5, GRAPH), Bar(3.0, to=None), Bar(9.0, to="jax"), Bar(1.0, to=None, compiled=True))
    case = Case("row", {}, bars=bars)
    report = Report(("torch", "jax"), compiled=False)
    report.add(case, Result("row", {"vmflow": 3.0, "graph": 1.0, "torch": 4.0, "other": 6.0}))
    assert [row["wanted"] for row in report.rows] == [
        {"<= 0.5": False, "<= 3 us": True, "<= 9 of jax": None},
        {"<= 0.5": True},
    ]
    report.print_summary()
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert " ".join(first.split()) == (
        "row 3.00 us 4.00 us - 0.75 - <= 0.5 NOT MET <= 3 us met <= 9 of jax not compared (other 6.00 us, 0.50)"
    )
    assert second.startswith("row: graph ")
    assert rest == ["2 of 3 are what is wanted", "    not row, <= 0.5"]


def test_the_table_is_printed_and_written(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\n{END}\n\nKept.\n")
    chosen_rows = ["--quick", "--against", "numpy", "--threads", "1,2", "--only", "chain"]
    monkeypatch.setattr("sys.argv", ["benchmarks", *chosen_rows, "--json", str(file), "--page", str(page)])
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    benchmarks.main()
    assert capfd.readouterr().out.count("8 elementwise ops, 256 floats: graph") == 2
    one, two = json.loads(file.read_text())
    assert [value["conditions"]["threads"] for value in (one, two)] == ["1", "2"]
    assert [set(row["figures"]) for row in one["rows"]] == [{"vmflow", "numpy"}, {"graph", "numpy"}]
    text = page.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n\nCommand: `python -m tests.benchmarks --quick ")
    assert text.endswith(f"{END}\n\nKept.\n")
    assert text.count("\n| 8 elementwise ops, 256 floats: graph | ") == 2
    assert str(Path.home() / ".cache") not in text


def test_a_page_without_marks_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n")
    monkeypatch.setattr("sys.argv", ["benchmarks", "--page", str(page)])
    with pytest.raises(SystemExit):
        benchmarks.main()
    printed = capsys.readouterr()
    assert "add them to the page" in printed.err
    assert not printed.out


def test_the_page_of_the_documentation_has_the_marks() -> None:
    before, behind = split_page(Path(__file__).parents[2] / "docs" / "performance.md")
    assert before.endswith(BEGIN)
    assert behind.startswith(END)
