"""The driver's answers, also by way of C, whose arguments ctypes must pass rightly."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cuda.fake_driver import FakeLibcuda
from vmflow.cuda import libcuda
from vmflow.cuda.libcuda import Driver

pytestmark = pytest.mark.host

SOURCE = r"""
#include <stdio.h>

int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuInit(unsigned flags) { return flags ? 1 : REFUSAL; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 1 << (20 + ordinal); return 0; }
int cuDeviceGetName(char *name, int room, int device) { snprintf(name, room, "GPU with handle %d", device); return 0; }
int cuGetErrorName(int status, const char **name) {
    if (status != 100) return 1;
    *name = "CUDA_ERROR_NO_DEVICE";
    return 0;
}
"""


def compiled(folder: Path, refusal: int) -> ctypes.CDLL:
    """A driver's library in C, whose cuInit returns `refusal`."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    (folder / "driver.c").write_text(SOURCE)
    library = folder / "libcuda.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", f"-DREFUSAL={refusal}", "-o", library, folder / "driver.c"], check=True
    )
    return ctypes.CDLL(str(library))


def test_a_driver_in_c(tmp_path: Path) -> None:
    assert libcuda.ask(compiled(tmp_path, 0)) == Driver((12, 4), ("GPU with handle 1048576", "GPU with handle 2097152"))


def test_errors_of_a_driver_in_c(tmp_path: Path) -> None:
    found = libcuda.ask(compiled(tmp_path, 100))
    assert found.cuda == (12, 4)
    assert found.devices == ()
    assert found.error is not None
    assert found.error.number == libcuda.NO_DEVICE
    assert str(found.error) == "cuInit says CUDA_ERROR_NO_DEVICE (100)"


@pytest.mark.parametrize(
    ("number", "version"), [(11080, (11, 8)), (12000, (12, 0)), (13010, (13, 1)), (13100, (13, 10))]
)
def test_versions(number: int, version: tuple[int, int]) -> None:
    assert libcuda.ask(FakeLibcuda(number)).cuda == version


def test_an_error_after_the_start() -> None:
    class Broken(FakeLibcuda):
        def cuDeviceGetCount(self, count: object) -> int:
            return 999

    found = libcuda.ask(Broken())
    assert found.devices == ()
    assert str(found.error) == "cuDeviceGetCount says an error without a name (999)"


def test_the_longest_name() -> None:
    assert libcuda.ask(FakeLibcuda(names=("G" * 255,))).devices == ("G" * 255,)
