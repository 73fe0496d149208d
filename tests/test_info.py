"""`python -m vmflow info` and `show_config`."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import vmflow as flow
from vmflow import info
from vmflow.__main__ import main
from vmflow.cuda import availability as cuda_availability

ROOT = Path(flow.__file__).parent


@pytest.mark.usefixtures("without_cuda")
def test_the_text_has_the_facts_for_bug_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    for expected in (flow.__version__, np.__version__, sys.version.split()[0], "BLAS", "CPUs", "no limit"):
        assert expected in text
    assert "cuda    not available: cuda:0 cannot be used: VMFLOW_CUDA=off turns CUDA off; unset it" in text
    assert "cpu     available" in text
    assert "sim     available" in text


def test_show_config_is_the_same_text(capsys: pytest.CaptureFixture[str]) -> None:
    main(["info"])
    assert info.show_config() == capsys.readouterr().out.rstrip("\n")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == info.collect_info()
    assert found["vmflow"]["version"] == flow.__version__
    assert found["platform"]["usable_cpus"] >= 1
    assert found["devices"]["cpu"] is None
    reason, error = found["cuda"]["why_not"], found["devices"]["cuda"]
    assert error is None if reason is None else error.startswith(f"cuda:0 cannot be used: {reason}")


def test_the_text_lists_the_parts_of_cuda() -> None:
    facts = {
        "driver": "12.8",
        "devices": ["NVIDIA H100", "NVIDIA L4"],
        "cupy": {"cupy-cuda12x": "14.2.0"},
        "nvrtc": "/nvrtc/libnvrtc.so.12",
    }
    lines = info.format_info(info.collect_info() | {"cuda": facts}).splitlines()
    first = lines.index("CUDA      driver for CUDA 12.8 at most")
    assert [line.strip() for line in lines[first + 1 : first + 5]] == [
        "GPU 0: NVIDIA H100",
        "GPU 1: NVIDIA L4",
        "cupy-cuda12x 14.2.0",
        "NVRTC /nvrtc/libnvrtc.so.12",
    ]
    nothing = info.format_info(
        info.collect_info() | {"cuda": {"driver": None, "devices": [], "cupy": {}, "nvrtc": None}}
    )
    assert "CUDA      driver unknown\n          cupy not installed\n          NVRTC not found\n" in nothing


def test_a_malformed_setting_of_cuda_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_CUDA", "yes")
    cuda_availability.forget()
    try:
        found = info.collect_info()
    finally:
        cuda_availability.forget()
    assert found["cuda"]["why_not"] == found["devices"]["cuda"]
    assert "VMFLOW_CUDA must be 'auto'" in info.format_info(found)


@pytest.mark.host
def test_memory_in_use_and_its_limit() -> None:
    limit = 1 << 40
    flow.set_memory_limit(limit, "cpu")
    try:
        large = flow.ones(1 << 16) + 1
        large.numpy()
        memory = info.collect_info()["memory"]["cpu"]
        assert memory["limit"] == limit
        assert memory["peak"] >= memory["used"] >= large.numel() * large.element_size()
        assert "limit 1024.0 GiB" in info.show_config()
    finally:
        flow.set_memory_limit(None, "cpu")


def test_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_SIM", "random:7")
    monkeypatch.delenv("VMFLOW_STALL_SECONDS", raising=False)
    monkeypatch.setenv("VMFLOW_SMI", "eager")
    environment = info.collect_info()["environment"]
    assert environment["VMFLOW_SIM"]["value"] == "random:7"
    assert environment["VMFLOW_STALL_SECONDS"]["value"] is None
    assert "ignored" in environment["VMFLOW_SMI"]["meaning"]
    (line,) = [splitline for splitline in info.show_config().splitlines() if "VMFLOW_STALL_SECONDS" in splitline]
    assert "  not set, as '60': seconds" in line


def test_all_variables_that_are_read_are_listed() -> None:
    read = set()
    for folder, _, files in os.walk(ROOT, followlinks=True):
        for path in [Path(folder, file) for file in files if file.endswith(".py")]:
            for node in ast.walk(ast.parse(path.read_text())):
                # The name alone: prose about a variable is longer.
                if isinstance(node, ast.Constant) and re.fullmatch(r"VMFLOW_[A-Z_]*", str(node.value)):
                    read.add(node.value)
    read.discard("VMFLOW_")
    assert read == {variable.name for variable in info.VARIABLES}


def test_compiled_modules_are_told_by_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    from vmflow.vm import engine

    monkeypatch.setattr(engine, "__file__", "/somewhere/vmflow/vm/engine.cpython-311-x86_64-linux-gnu.so")
    assert "vmflow.vm.engine" in info.collect_info()["vmflow"]["compiled_modules"]
    assert "vmflow.vm.engine" in info.show_config()


def test_without_threadpoolctl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    assert info.collect_info()["numpy"]["blas_threads"] is None
    assert "threads   BLAS unknown" in info.show_config()


@pytest.mark.parametrize("arguments", [[], ["inof"], ["info", "--xml"]])
def test_a_wrong_command_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage: python -m vmflow" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"vmflow {flow.__version__}\n"


def test_as_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The installed command calls the same function, and its usage shows the name by which it was called."""
    source = ROOT.parent / "pyproject.toml"
    if not source.exists():
        pytest.skip("the sources are elsewhere")
    assert tomllib.loads(source.read_text(encoding="utf-8"))["project"]["scripts"] == {"vmflow": "vmflow.__main__:main"}
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/vmflow"])
    with pytest.raises(SystemExit):
        main([])
    assert "usage: vmflow [" in capsys.readouterr().err


def test_as_a_program() -> None:
    environment = dict(os.environ, PYTHONPATH=str(ROOT.parent))
    done = subprocess.run(
        [sys.executable, "-m", "vmflow", "info", "--json"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT.parent,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["vmflow"]["version"] == flow.__version__
