"""The command for the first day with a GPU runs on the emulated device, and reports all failures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import kernel_table, table_cases
from .compiling import Usage
from .emulated import emulated
from .gpu_day import __main__ as gpu_day, figures_torch, planted
from .gpu_day.child import GRACE
from .gpu_day.findings import Findings, Task
from .gpu_day.networks import networks
from .gpu_day.replays import replays
from .gpu_day.report import Report
from .gpu_day.running import run_stage
from .gpu_day.training import losses

pytestmark = [pytest.mark.emulated, pytest.mark.host]


def _run(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    status = gpu_day.main(["--out", str(folder), *arguments])
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return status, report


def test_two_stages_run_and_are_reported(tmp_path: Path) -> None:
    status, report = _run(tmp_path, "--quick", "--stages", "versions", "ops")
    failures = [failure for stage in report["stages"].values() for failure in stage["failures"]]
    assert not failures
    assert status == 0
    assert report["good"]
    assert report["stages"]["versions"]["facts"]["commit"]
    assert report["stages"]["ops"]["passed"] > 10
    text = (tmp_path / "report.md").read_text()
    assert "emulated device 0" in text
    assert "| ops | ok |" in text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_of_it_is_rehearsed(tmp_path: Path) -> None:
    status, report = _run(tmp_path)
    failures = [failure for stage in report["stages"].values() for failure in stage["failures"]]
    assert not failures
    assert status == 0
    assert list(report["stages"]) == list(gpu_day.STAGES)
    figures = {figure["name"]: figure["values"]["vmflow"] for figure in report["stages"]["figures"]["figures"]}
    assert len(figures) >= 15
    assert all([value > 0 for name, value in figures.items() if "host waits" not in name])


@pytest.mark.parametrize(
    ("how", "status", "passed", "processes"),
    [
        ("raises", "failed", 1, 1),
        ("fails", "failed", 2, 1),
        # Another process goes on behind the piece of work that has ended the first.
        ("dies", "failed", 2, 2),
        ("loses", "device lost", 2, 2),
    ],
)
def test_failures_are_reported_and_the_rest_is_done(
    how: str, status: str, passed: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(planted.VARIABLE, how)
    found = run_stage([Task("planted", 60.0, quick=True, emulated=True)], tmp_path)
    assert (found["status"], found["processes"]) == (status, processes)
    # A process that dies may not have written its last checks.
    assert found["passed"] in ((passed, passed - 1) if how == "dies" else (passed,))
    assert [failure["name"] for failure in found["failures"]] == ["piece 1"]
    report = Report(tmp_path, "today", {})
    report.stages["planted"] = found
    report.write()
    assert not report.good
    assert "piece 1" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_a_stage_that_hangs_is_ended_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(planted.VARIABLE, "hangs")
    found = run_stage([Task("planted", 20.0, quick=True, emulated=True)], tmp_path)
    assert found["status"] == "failed"
    assert "_go_wrong" in found["failures"][0]["error"]
    assert found["seconds"] < 20 + 2 * GRACE


def test_a_run_without_a_device_ends_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_CUDA", "off")
    status, report = _run(tmp_path, "--quick", "--stages", "versions", "figures")
    assert status == 1
    assert list(report["stages"]) == ["versions"]
    assert "VMFLOW_CUDA" in report["stages"]["versions"]["failures"][0]["summary"]


def test_a_graph_that_is_not_replayed_says_why() -> None:
    network = networks(small=True)["MLP"]
    with emulated("lazy") as devices:
        with replays() as counted:
            replayed, _ = losses(network, "cuda", 4, as_graph=True)
        assert counted.graphs == 3
        devices.driver.captures_products = False
        with replays() as counted:
            found, how = losses(network, "cuda", 4, as_graph=True)
        assert counted.graphs == 0
        assert counted.calls["launch"] > 0
    assert found == replayed
    assert any(["ops on cuda:0 run one by one: " in sentence for sentence in how])


def test_the_report_has_ratios_to_torch_of_the_same_way(tmp_path: Path) -> None:
    findings = Findings(Task("figures", 10.0), tmp_path / "figures.json")
    values = {"vmflow": 2.0, "vmflow, graph": 1.0, "vmflow, copy": 3.0, "torch": 4.0, "torch, graph": 8.0}
    findings.figure("step", "us", values, "here")
    findings.write()
    report = Report(tmp_path, "today", {})
    report.stages["figures"] = {**json.loads((tmp_path / "figures.json").read_text()), "processes": 1}
    report.write()
    lines = (tmp_path / "report.md").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("| step |")]
    assert "torch, graph 8 | eager 0.50, graph 0.12 | here |" in line


def test_torch_does_the_same_work() -> None:
    torch = pytest.importorskip("torch")
    works = [
        figures_torch.tiny_op(torch, 4, 2, "cpu"),
        *figures_torch.chain(torch, 4, 2, "cpu").values(),
        figures_torch.product(torch, 4, "bfloat16", 2, "cpu"),
    ]
    for work in works:
        work()
    for network in networks(small=True).values():
        step = figures_torch.step_of(torch, network, "cpu")
        assert step().item() > step().item()


def test_calls_of_the_table_are_the_same_on_both_devices() -> None:
    calls = list(table_cases.cases(["float32", "int64"], ["add", "rand"]))
    assert {(case.op, case.dtype) for case in calls} == {("add", "float32"), ("add", "int64"), ("rand", "float32")}
    with emulated("lazy"):
        for case in calls:
            (found,), (wanted,) = case.results("cuda"), case.results("cpu")
            assert (found == wanted).all()
            if case.graded:
                assert len(case.gradients("cuda")) == len(case.gradients("cpu")) == 2


_WITHOUT = """
import importlib.util, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pytest", "hypothesis"):
            raise ModuleNotFoundError(name)

find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("pytest", "hypothesis") else find(name, *rest)
sys.meta_path.insert(0, Blocked())
from tests.cuda import table_cases
print(len(table_cases.op_names()))
"""


@pytest.mark.slow
def test_the_table_of_calls_is_there_without_pytest_and_hypothesis() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(table_cases.op_names())


def test_the_table_of_kernels_names_families_and_functions_of_cupy(tmp_path: Path) -> None:
    kept = kernel_table.Kept(tmp_path / "kept.json")
    kernel_table.collect(kept, ["neg"], ["float32"], 1)
    kept.ops["svd"] = kernel_table.OpFound({}, {"svd float32": ["cupy.linalg.svd", "cupy.copyto"]}, [])
    page = kernel_table.page(kept, ["neg", "svd"], ["float32"])
    assert "| neg | 1 | " in page
    assert "| svd | float32 | copyto, linalg.svd |" in page
    assert "failed" not in page
    # All is found in the file, and nothing is run.
    again = kernel_table.Kept(tmp_path / "kept.json")
    assert again.usages == kept.usages
    kernel_table.collect(again, ["neg"], ["float32"], 1)
    assert again.ops["neg"] == kept.ops["neg"]


def test_functions_of_cupy_are_noted_by_op_and_dtype() -> None:
    found, kernels = kernel_table.run_op("svdvals", ["float32"])
    assert not found.errors
    assert found.stand_ins["svdvals float32"] == ["cupy.copyto", "cupy.linalg.svd"]
    assert set(found.kernels.values()) == {kernel.name for kernel in kernels}


def test_families_have_the_largest_of_their_kernels() -> None:
    usages = {f"{key} {architecture}": Usage(20, 0, 0) for key in "abc" for architecture in (80, 90, 100)}
    usages["a 90"], usages["b 100"] = Usage(40, 16, 0), Usage(30, 512, 8)
    kernels = {"a": "sum_float32_float64", "b": "sum_int64_2", "c": "max_pool2d_half_"}
    other, family = kernel_table.families(kernels, usages)
    assert family == ("sum", 2, Usage(40, 512, 8), "sum_float32_float64, sm_90")
    assert other.name == "max_pool2d_half"
