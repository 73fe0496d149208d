"""The binding of NVRTC: finding the library, compiling, its messages, and the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support import run_program
from vmflow.kernels.cuda import nvrtc

needs_nvrtc = pytest.mark.emulated

SOURCE = 'extern "C" __global__ void kernel(float* x) { x[threadIdx.x] += 1; }'
OPTIONS = ("--gpu-architecture=compute_80",)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_CACHE_DIR", str(tmp_path / "cache"))


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "kernels").glob("*"))


@needs_nvrtc
def test_the_library_reports_its_version_and_architectures() -> None:
    found = nvrtc.library()
    assert found is nvrtc.library()
    assert found.version >= (12, 0)
    assert {80, 90} <= set(found.architectures)
    assert sorted(found.architectures) == list(found.architectures)


@needs_nvrtc
def test_ptx_is_text() -> None:
    code = nvrtc.library().compile(SOURCE, "a.cu", OPTIONS).code.decode("ascii")
    assert ".target sm_80" in code
    assert ".entry kernel(" in code
    assert "\0" not in code


@needs_nvrtc
def test_a_cubin_is_an_elf_file_and_its_log_tells_of_registers() -> None:
    compiled = nvrtc.library().compile(SOURCE, "a.cu", ["--gpu-architecture=sm_80", "--ptxas-options=-v"], to="cubin")
    assert compiled.code[:4] == b"\x7fELF"
    assert "kernel" in compiled.log
    assert "registers" in compiled.log


@needs_nvrtc
def test_a_cubin_needs_a_real_architecture() -> None:
    with pytest.raises(nvrtc.CompileError, match="A cubin needs a real architecture, such as --gpu-architecture=sm_80"):
        nvrtc.library().compile(SOURCE, "a.cu", OPTIONS, to="cubin")


@needs_nvrtc
def test_an_error_shows_the_lines_of_the_source() -> None:
    source = "\n".join(["// first", "__global__ void kernel(float* x) {", "    x[0] = INFINITY;", "}", "// last"])
    with pytest.raises(nvrtc.CompileError) as caught:
        nvrtc.library().compile(source, "mine.cu", OPTIONS)
    assert 'identifier "INFINITY" is undefined' in caught.value.log
    assert caught.value.excerpt.splitlines() == [
        "     2 | __global__ void kernel(float* x) {",
        ">    3 |     x[0] = INFINITY;",
        "     4 | }",
    ]
    assert str(caught.value).startswith("NVRTC cannot compile mine.cu: NVRTC_ERROR_COMPILATION\n")
    assert caught.value.excerpt in str(caught.value)


@needs_nvrtc
def test_an_option_that_is_not_known() -> None:
    with pytest.raises(nvrtc.CompileError, match="unrecognized option --strange"):
        nvrtc.library().compile(SOURCE, "a.cu", [*OPTIONS, "--strange"])


@needs_nvrtc
@pytest.mark.parametrize(
    ("source", "options", "to", "problem"),
    [
        (SOURCE, OPTIONS, "sass", "to must be one of ptx, cubin, not 'sass'"),
        (SOURCE + "\0", OPTIONS, "ptx", "must not contain the character"),
        (SOURCE, ["--a\0b"], "ptx", "must not contain the character"),
    ],
)
def test_calls_that_make_no_sense(source: str, options: list[str], to: nvrtc.Target, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        nvrtc.library().compile(source, "a.cu", options, to=to)


# The cache


@needs_nvrtc
def test_code_is_kept_under_all_that_it_was_made_from(tmp_path: Path) -> None:
    library = nvrtc.library()
    first = library.compile(SOURCE, "a.cu", OPTIONS)
    assert len(kept(tmp_path)) == 1
    stamp = kept(tmp_path)[0].read_bytes()
    assert library.compile(SOURCE, "a.cu", OPTIONS).code == first.code
    assert len(kept(tmp_path)) == 1
    for number, (source, name, options) in enumerate(
        [
            (SOURCE + " ", "a.cu", OPTIONS),
            (SOURCE, "b.cu", OPTIONS),
            (SOURCE, "a.cu", ("--gpu-architecture=compute_90",)),
        ]
    ):
        library.compile(source, name, options)
        assert len(kept(tmp_path)) == 2 + number
    library.compile(SOURCE, "a.cu", ["--gpu-architecture=sm_80"], to="cubin")
    library.compile(SOURCE, "a.cu", ["--gpu-architecture=sm_80"], to="ptx")
    assert len(kept(tmp_path)) == 6
    assert stamp in [path.read_bytes() for path in kept(tmp_path)]


@needs_nvrtc
def test_the_cached_code_is_the_returned_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = nvrtc.library()
    first = library.compile(SOURCE, "a.cu", OPTIONS)
    monkeypatch.setattr(nvrtc.Nvrtc, "_compile", lambda *_: pytest.fail("it was compiled again"))
    assert library.compile(SOURCE, "a.cu", OPTIONS) == nvrtc.Compiled(first.code, "")


@needs_nvrtc
def test_a_file_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    library = nvrtc.library()
    first = library.compile(SOURCE, "a.cu", OPTIONS)
    path = kept(tmp_path)[0]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert library.compile(SOURCE, "a.cu", OPTIONS).code == first.code
    assert path.read_bytes() == whole


@needs_nvrtc
def test_errors_are_not_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(nvrtc.CompileError):
            nvrtc.library().compile("nonsense", "a.cu", OPTIONS)
    assert kept(tmp_path) == []
    nvrtc.library().compile(SOURCE, "a.cu", OPTIONS, keep=False)
    assert kept(tmp_path) == []


@needs_nvrtc
def test_threads_compile_at_the_same_time() -> None:
    codes: dict[int, bytes] = {}

    def work(number: int) -> None:
        codes[number] = nvrtc.library().compile(SOURCE.replace("1", str(number)), "a.cu", OPTIONS).code

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == list(range(2, 8))
    assert len(set(codes.values())) == 6


@needs_nvrtc
def test_processes_share_the_cache(tmp_path: Path) -> None:
    program = f"""
from vmflow.kernels.cuda import nvrtc
print(len(nvrtc.library().compile({SOURCE!r}, "a.cu", {OPTIONS!r}).code))
"""
    root = Path(nvrtc.__file__).parents[3]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]))
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    lengths = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert lengths == {f"{len(nvrtc.library().compile(SOURCE, 'a.cu', OPTIONS).code)}\n"}
    assert len(kept(tmp_path)) == 1


# Where it is


def made(folder: Path, *parts: str) -> Path:
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no library")
    return path


def test_the_newest_wheel_comes_first_then_a_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.setattr(nvrtc, "_loader_finds", lambda name: False)
    monkeypatch.setattr(nvrtc, "_TOOLKIT", str(tmp_path / "usual"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "path"))
    assert nvrtc.find() is None
    places = [
        ("usual", "lib64", "libnvrtc.so.12"),
        ("path", "lib64", "libnvrtc.so.13"),
        ("home", "lib64", "libnvrtc.so.12"),
        ("home", "lib64", "libnvrtc.so.13"),
    ]
    for place in places:
        made_one = made(tmp_path, *place)
        assert nvrtc.find() == made_one
    monkeypatch.setattr(nvrtc, "_loader_finds", lambda name: name == "libnvrtc.so.12")
    assert nvrtc.find() == Path("libnvrtc.so.12")
    for wheel in ("nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cu13/lib/libnvrtc.so.13"):
        made_one = made(tmp_path, "site", wheel)
        assert nvrtc.find() == made_one


def test_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "find", lambda: None)
    monkeypatch.setattr(nvrtc, "_loaded", {})
    with pytest.raises(ImportError, match=r"was found neither .* Install it by pip install 'vmflow\[cuda-check\]'"):
        nvrtc.library()
    broken = made(tmp_path, "libnvrtc.so.13")
    with pytest.raises(nvrtc.NvrtcMissing, match=r"libnvrtc.so.13 cannot be loaded: .*Install another by"):
        nvrtc.library(broken)
    with pytest.raises(nvrtc.NvrtcMissing, match=r"cannot be loaded: .*nvrtcGetErrorString"):
        nvrtc.library(Path("libc.so.6"))


def test_to_import_the_binding_loads_nothing() -> None:
    run_program(
        """
        import sys
        from pathlib import Path

        from vmflow.kernels.cuda import nvrtc

        assert "cupy" not in sys.modules
        maps = Path("/proc/self/maps")
        assert not maps.exists() or "nvrtc" not in maps.read_text()
        """
    )
