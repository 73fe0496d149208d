"""Whether CUDA devices can be used, and the sentence for every way in which they cannot."""

from __future__ import annotations

import os
import re
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vmflow as flow
from tests.cuda.fake_driver import FakeLibcuda
from tests.support import run_program
from vmflow.cuda import availability, libcuda
from vmflow.cuda.availability import Probes, describe, find

pytestmark = pytest.mark.host


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    availability.forget()
    yield
    availability.forget()


def probes(
    driver: FakeLibcuda | OSError | None = None,
    cupy: dict[str, str] | None = None,
    *,
    import_cupy: Callable[[], object] | None = None,
    nvrtc: Path | None = None,
    **environment: str,
) -> Probes:
    """A machine with a GPU, a driver for CUDA 13 and cupy, except for the given parts."""

    def load_driver() -> Any:
        if isinstance(driver, OSError):
            raise driver
        return driver or FakeLibcuda()

    packages = {"cupy-cuda13x": "14.2.0"} if cupy is None else cupy
    return Probes(environment, load_driver, lambda: packages, import_cupy or (lambda: None), lambda: nvrtc)


def never() -> Any:
    raise AssertionError("nothing is to be asked of this")


def raises(error: Exception) -> Callable[[], object]:
    def import_cupy() -> object:
        raise error

    return import_cupy


def reason(asked: Probes) -> str:
    found = find(asked)
    assert found.devices == ()
    assert found.reason is not None
    assert "\n" not in found.reason
    return found.reason


# Where everything is right


@pytest.mark.parametrize(
    ("version", "package"),
    [
        (12000, "cupy-cuda12x"),
        (12090, "cupy-cuda12x"),
        (13000, "cupy-cuda12x"),
        (13000, "cupy-cuda13x"),
        (14010, "cupy-cuda13x"),
        (12040, "cupy"),
    ],
)
@pytest.mark.parametrize("release", ["14.0.1", "14.2.0", "14.10", "14.0.1.post1"])
def test_devices_that_can_be_used(version: int, package: str, release: str) -> None:
    found = find(probes(FakeLibcuda(version, ("NVIDIA H100", "NVIDIA L4")), {package: release}))
    assert found.reason is None
    assert found.devices == ("NVIDIA H100", "NVIDIA L4")


# Missing parts, from the bottom up


def test_switched_off() -> None:
    asked = Probes({"VMFLOW_CUDA": "off"}, never, never, never, never)
    assert reason(asked) == "VMFLOW_CUDA=off turns CUDA off; unset it to use CUDA devices"


def test_no_driver() -> None:
    missing = OSError("libcuda.so.1: cannot open shared object file: No such file or directory")
    assert reason(probes(missing, import_cupy=never)) == (
        "there is no NVIDIA driver here (libcuda.so.1: cannot open shared object file: No such file or directory); "
        "install the driver of the GPU, or give a container access to it, as docker run --gpus all does"
    )


@pytest.mark.parametrize("driver", [FakeLibcuda(refusal=100), FakeLibcuda(names=())])
def test_a_driver_without_a_gpu(driver: FakeLibcuda) -> None:
    assert reason(probes(driver, import_cupy=never)) == (
        "the NVIDIA driver finds no GPU; see which GPUs nvidia-smi lists"
    )


def test_hidden_gpus() -> None:
    assert reason(probes(FakeLibcuda(refusal=100), import_cupy=never, CUDA_VISIBLE_DEVICES="")) == (
        "the NVIDIA driver shows no GPU to this process, for which CUDA_VISIBLE_DEVICES is ''; unset it, or set it to "
        "a GPU that nvidia-smi lists"
    )


def test_a_forked_process() -> None:
    found = reason(probes(FakeLibcuda(refusal=3), import_cupy=never))
    assert found.startswith("this process was forked from one that had asked for CUDA devices")
    assert "'spawn'" in found


@pytest.mark.parametrize(
    ("status", "name"), [(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"), (998, "an error without a name (998)")]
)
def test_a_driver_that_does_not_start(status: int, name: str) -> None:
    assert reason(probes(FakeLibcuda(refusal=status), import_cupy=never)) == (
        f"the NVIDIA driver does not start (cuInit says {name}); see what nvidia-smi says, and restart the machine if "
        "its driver has been updated"
    )


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (13000, "pip install 'vmflow[cuda13]' or 'vmflow[cuda12]', which the driver for CUDA 13.0 can run"),
        (12040, "pip install 'vmflow[cuda12]', which the driver for CUDA 12.4 can run"),
        (
            11080,
            "update the driver, which is for CUDA 11.8 at most, to 525 or later, and pip install 'vmflow[cuda12]'",
        ),
    ],
)
def test_no_cupy(version: int, remedy: str) -> None:
    assert reason(probes(FakeLibcuda(version), {}, import_cupy=never)) == f"cupy is not installed; {remedy}"


def test_two_packages_of_cupy() -> None:
    both = {"cupy-cuda12x": "14.2.0", "cupy-cuda13x": "14.2.0"}
    assert reason(probes(FakeLibcuda(12080), both, import_cupy=never)) == (
        "cupy-cuda12x and cupy-cuda13x are installed together and overwrite each other's files; pip uninstall "
        "cupy-cuda12x cupy-cuda13x, then pip install 'vmflow[cuda12]', which the driver for CUDA 12.8 can run"
    )


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("cupy-cuda12x", "13.6.0"),
        ("cupy-cuda12x", "14.0.0"),
        ("cupy-cuda12x", "14.0.0rc1"),
        ("cupy-cuda12x", "15.0.0a1"),
        ("cupy-cuda11x", "13.4.1"),
        ("cupy", "16.1.0"),
    ],
)
def test_cupy_of_another_version(package: str, version: str) -> None:
    assert reason(probes(FakeLibcuda(12040), {package: version}, import_cupy=never)) == (
        f"{package} {version} is installed, but vmflow needs cupy 14.0.1 or later and below 15; pip uninstall "
        f"{package}, then pip install 'vmflow[cuda12]', which the driver for CUDA 12.4 can run"
    )


def test_a_driver_too_old_for_any_cupy() -> None:
    assert reason(probes(FakeLibcuda(11080), {"cupy-cuda12x": "14.2.0"}, import_cupy=never)) == (
        "cupy-cuda12x needs a driver for CUDA 12, but the driver here is for CUDA 11.8 at most; update the driver to "
        "525 or later"
    )


def test_cupy_for_a_newer_cuda_than_the_driver() -> None:
    assert reason(probes(FakeLibcuda(12090), {"cupy-cuda13x": "14.2.0"}, import_cupy=never)) == (
        "cupy-cuda13x needs a driver for CUDA 13, but the driver here is for CUDA 12.9 at most; update the driver to "
        "580 or later, or pip uninstall cupy-cuda13x, then pip install 'vmflow[cuda12]', which the driver for CUDA "
        "12.9 can run"
    )


def test_cupy_that_cannot_be_imported() -> None:
    error = ImportError("=====\nFailed to import CuPy.\n\nOriginal error: ...")
    error.__cause__ = ImportError("libcudart.so.13: cannot open\nshared object file")
    assert reason(probes(import_cupy=raises(error))) == (
        "cupy-cuda13x 14.2.0 is installed but cannot be imported (ImportError: libcudart.so.13: cannot open shared "
        "object file); pip install --force-reinstall cupy-cuda13x==14.2.0"
    )


def test_an_import_that_fails_in_another_way() -> None:
    assert "(AttributeError: no ndarray)" in reason(probes(import_cupy=raises(AttributeError("no ndarray"))))


# Emulated devices


@pytest.mark.parametrize(("count", "expected"), [(None, 2), ("3", 3)])
def test_emulated_devices(count: str | None, expected: int) -> None:
    environment = {"VMFLOW_CUDA": "emulated:random:5"} | ({} if count is None else {"VMFLOW_CUDA_DEVICES": count})
    found = find(Probes(environment, never, never, never, lambda: Path("libnvrtc.so.12")))
    assert found.reason is None
    assert len(found.devices) == expected
    assert (found.setting.mode, found.setting.seed) == ("random", 5)


def test_emulated_devices_without_a_compiler() -> None:
    assert reason(Probes({"VMFLOW_CUDA": "emulated"}, never, never, never, lambda: None)) == (
        "VMFLOW_CUDA=emulated compiles kernels by the library NVRTC, which is not installed; pip install "
        "'vmflow[cuda-check]'"
    )


@pytest.mark.parametrize("variable", ["VMFLOW_CUDA", "VMFLOW_CUDA_DEVICES"])
def test_a_malformed_environment(variable: str) -> None:
    environment = {"VMFLOW_CUDA": "emulated", variable: "many"}
    with pytest.raises(ValueError, match=rf"{variable} must be .* not 'many'"):
        find(Probes(environment, never, never, never, never))


# The answer of this process


def test_the_sentence_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_CUDA", "off")
    with pytest.raises(flow.DeviceUnavailable) as refused:
        flow.zeros(2, device="cuda:1")
    assert str(refused.value) == f"cuda:1 cannot be used: {flow.cuda.why_not()}; or use device='cpu'"
    assert not flow.cuda.is_available()
    assert flow.cuda.device_count() == 0


@pytest.mark.parametrize("ask", [flow.cuda.why_not, flow.cuda.is_available, flow.device("cuda").require])
def test_a_malformed_setting_is_an_error_of_each_caller(
    ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMFLOW_CUDA", "yes")
    for _ in range(2):
        with pytest.raises(ValueError, match="VMFLOW_CUDA must be"):
            ask()


def test_the_answer_is_remembered_until_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_CUDA", "off")
    before = availability.findings()
    monkeypatch.setenv("VMFLOW_CUDA", "yes")
    assert availability.findings() is before
    availability.forget()
    with pytest.raises(ValueError):
        availability.findings()


def test_threads_get_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    start = threading.Barrier(8)
    answers: list[availability.Findings] = []

    def find_once() -> availability.Findings:
        asked.append(threading.get_ident())
        return find(probes())

    def ask() -> None:
        start.wait()
        answers.append(availability.findings())

    monkeypatch.setattr(availability, "find", find_once)
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(asked) == 1
    assert len({id(answer) for answer in answers}) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_asks_anew() -> None:
    """The driver that its parent has started does not work in it."""
    run_program(
        """
        import os

        from vmflow.cuda import availability

        os.environ["VMFLOW_CUDA"] = "off"
        found = availability.findings()
        child = os.fork()
        if child == 0:
            os._exit(17 if availability.findings() is not found else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        assert availability.findings() is found
        """
    )


def test_an_index_out_of_range() -> None:
    one = find(probes())
    assert availability._why_not_device(0, one, {}) is None
    assert availability._why_not_device(3, one, {}) == "this machine has 1 CUDA device"
    two = find(probes(FakeLibcuda(names=("A", "B"))))
    assert availability._why_not_device(2, two, {"CUDA_VISIBLE_DEVICES": "0,1"}) == (
        "this machine has 2 CUDA devices for which CUDA_VISIBLE_DEVICES is '0,1'"
    )
    emulated = find(probes(nvrtc=Path("libnvrtc.so"), VMFLOW_CUDA="emulated"))
    assert availability._why_not_device(1, emulated, {}) is None
    assert availability._why_not_device(2, emulated, {}) == ("2 CUDA devices are emulated, as VMFLOW_CUDA_DEVICES says")


def test_an_index_out_of_range_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "find", lambda: find(probes()))
    flow.device("cuda:0").require()
    with pytest.raises(flow.DeviceUnavailable, match="cuda:3 cannot be used: this machine has 1 CUDA device"):
        flow.device("cuda:3").require()
    assert flow.cuda.is_available()
    assert flow.backends.cuda.is_built()
    assert flow.cuda.device_count() == 1


# Bug reports


def test_the_description_of_a_machine_that_is_right() -> None:
    driver = FakeLibcuda(12080, ("NVIDIA H100", "NVIDIA L4"))
    found = describe(probes(driver, {"cupy-cuda12x": "14.2.0"}, nvrtc=Path("/nvrtc/libnvrtc.so.12")))
    assert found == {
        "why_not": None,
        "driver": "12.8",
        "devices": ["NVIDIA H100", "NVIDIA L4"],
        "cupy": {"cupy-cuda12x": "14.2.0"},
        "nvrtc": "/nvrtc/libnvrtc.so.12",
    }


def test_the_description_names_present_and_missing_parts() -> None:
    found = describe(probes(FakeLibcuda(refusal=803), import_cupy=never))
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in found.pop("why_not")
    assert found == {"driver": "13.0", "devices": [], "cupy": {"cupy-cuda13x": "14.2.0"}, "nvrtc": None}


def test_the_description_leaves_alone_a_driver_that_is_not_to_be_used() -> None:
    asked = Probes({"VMFLOW_CUDA": "off"}, never, lambda: {}, never, lambda: None)
    found = describe(asked)
    assert found.pop("why_not").startswith("VMFLOW_CUDA=off")
    assert found == {"driver": None, "devices": [], "cupy": {}, "nvrtc": None}


def test_the_description_of_a_machine_whose_environment_is_malformed() -> None:
    found = describe(probes(import_cupy=never, VMFLOW_CUDA="nonsense"))
    assert found["why_not"].startswith("VMFLOW_CUDA must be")
    assert found["devices"] == ["H100"]


# The real machine


def test_this_machine() -> None:
    """The functions agree with each other on any machine."""
    found = availability.describe()
    reason = flow.cuda.why_not()
    assert found["why_not"] == reason
    assert flow.cuda.is_available() == flow.backends.cuda.is_built() == (reason is None)
    if reason is None:
        assert flow.cuda.device_count() > 0
        flow.device("cuda").require()
    else:
        assert re.search(r"[a-z].*; .*[a-z]", reason), "it says what is missing, and then what to do"
        assert flow.cuda.device_count() == 0
        with pytest.raises(flow.DeviceUnavailable, match=re.escape(reason)):
            flow.device("cuda").require()


def test_cupy_is_not_imported_in_vain() -> None:
    """Where the driver is missing or CUDA is off, whether or not cupy is installed."""
    program = """
        import sys

        import vmflow as flow

        assert not flow.cuda.is_available()
        assert flow.cuda.device_count() == 0
        assert flow.cuda.why_not()
        try:
            flow.zeros(2, device="cuda")
        except flow.DeviceUnavailable as error:
            assert flow.cuda.why_not() in str(error)
        else:
            raise AssertionError("zeros must be refused")
        assert flow.show_config()
        assert not [name for name in sys.modules if name.split(".")[0] in ("cupy", "cupyx", "cupy_backends")]
        """
    run_program(program, VMFLOW_CUDA="off")
    if not _has_driver():
        run_program(program, VMFLOW_CUDA="auto")


def _has_driver() -> bool:
    try:
        libcuda.load()
    except OSError:
        return False
    return True


def test_the_range_of_versions_is_the_one_that_is_installed() -> None:
    source = Path(flow.__file__).resolve().parents[1] / "pyproject.toml"
    if not source.exists():
        pytest.skip("the sources are elsewhere")
    extras = tomllib.loads(source.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    versions = f">={'.'.join(map(str, availability.OLDEST_CUPY))},<{availability.NEXT_CUPY[0]}"
    for major, extra in availability._EXTRAS.items():
        cupy, nvmath, bindings = extras[extra]
        assert cupy == f"cupy-cuda{major}x{versions}"
        assert nvmath.startswith("nvmath-python")
        assert bindings.startswith(f"cuda-bindings>={major}.")
        assert bindings.endswith(f",<{major + 1}")
    assert extras["cuda"] == ["vmflow[cuda12]"]
    assert "cuda-check" in extras
