"""Which kernels BLAS uses, and when there is a hint to give."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vmflow as flow
from vmflow.kernels import blas_core

pytestmark = pytest.mark.host

AVX512 = "avx512f avx512dq avx512cd avx512bw avx512vl"


def _cpu_info(folder: Path, flags: str) -> Path:
    path = folder / "cpuinfo"
    processor = f"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t\t: fpu avx2 {flags}\nbugs\t\t:\n"
    path.write_text(processor + "\n" + processor.replace("processor\t: 0", "processor\t: 1"))
    return path


def test_flags_are_read(tmp_path: Path) -> None:
    assert blas_core.cpu_flags(_cpu_info(tmp_path, "fma")) == {"fpu", "avx2", "fma"}
    assert blas_core.cpu_flags(tmp_path / "nowhere") == frozenset()
    (tmp_path / "other").write_text("Features : asimd\n")
    assert blas_core.cpu_flags(tmp_path / "other") == frozenset()


@pytest.mark.parametrize("core", ["Haswell", "Zen", "Prescott"])
def test_a_processor_with_more_than_the_kernels_use_gets_a_hint(core: str, tmp_path: Path) -> None:
    found = blas_core.hint(core, blas_core.cpu_flags(_cpu_info(tmp_path, AVX512)))
    assert found is not None
    assert core in found
    assert "OPENBLAS_CORETYPE=SkylakeX" in found


@pytest.mark.parametrize(
    ("core", "flags"),
    [
        ("SkylakeX", AVX512),
        ("COOPERLAKE", AVX512),
        ("Haswell", "avx512f avx512cd"),  # as of the first processors with AVX-512, for which there are no kernels
        ("Haswell", ""),
        (None, AVX512),
    ],
)
def test_there_is_no_hint_where_nothing_is_to_be_gained(core: str | None, flags: str, tmp_path: Path) -> None:
    assert blas_core.hint(core, blas_core.cpu_flags(_cpu_info(tmp_path, flags))) is None


def test_the_core_is_the_one_of_the_environment() -> None:
    if blas_core.loaded_core() is None:
        pytest.skip("numpy came without OpenBLAS")
    if "avx2" not in blas_core.cpu_flags():
        pytest.skip("the processor has only the oldest kernels to choose from")
    program = "from vmflow.kernels import blas_core; print(blas_core.loaded_core())"
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Sandybridge"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip().lower() == "sandybridge"


def test_no_library_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(blas_core, "libraries", list)
    assert blas_core.loaded_core() is None
    broken = tmp_path / "libopenblas.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(blas_core, "libraries", lambda: [broken])
    assert blas_core.loaded_core() is None


def test_the_configuration_shows_core_and_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_core, "loaded_core", lambda: "Haswell")
    monkeypatch.setattr(blas_core, "cpu_flags", lambda: frozenset(AVX512.split()))
    shown = flow.show_config()
    assert "kernels for Haswell" in shown
    assert "OPENBLAS_CORETYPE=SkylakeX" in shown
    monkeypatch.setattr(blas_core, "cpu_flags", frozenset)
    assert "OPENBLAS_CORETYPE=SkylakeX" not in flow.show_config()
