"""The hot modules stay within the Python that mypyc compiles, and a wheel can be made without a compiler."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytest.importorskip("setuptools", reason="the build is setuptools'")


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that builds, as new."""
    if not (ROOT / "compiled_core.py").exists():
        pytest.skip("the sources are elsewhere")
    monkeypatch.delenv("VMFLOW_COMPILE", raising=False)
    spec = importlib.util.spec_from_file_location("compiled_core_under_test", ROOT / "compiled_core.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wheels(build: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of setuptools' calls, which make no wheels here."""
    made: list[dict[str, Any]] = []

    def make(*passed_on: object) -> str:
        made.append(dict(build.arguments))
        return "the.whl"

    monkeypatch.setattr(build.build_meta, "build_wheel", make)
    return made


def _unable(folder: Path) -> Any:
    raise SystemExit("error: command 'cc' failed")


def test_every_module_that_is_named_exists_once(build: Any) -> None:
    names = build.modules()
    assert names == sorted(set(names))
    for name in names:
        assert (ROOT / f"{name.replace('.', '/')}.py").exists(), name


def test_the_hot_modules_import_from_compiled_modules(build: Any) -> None:
    """A name imported from a package's `__init__`, which is not compiled, has no known type for the compiler."""
    for name in build.modules():
        path = ROOT / f"{name.replace('.', '/')}.py"
        package = name.rpartition(".")[0]
        for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(found, ast.ImportFrom):
                continue
            source = importlib.util.resolve_name("." * found.level + (found.module or ""), package)
            compiled = [value for value in build.modules() if value.startswith(f"{source}.")]
            for module in compiled:
                defined = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")).body
                classes = {value.name for value in defined if isinstance(value, ast.ClassDef)}
                assert not classes & {value.name for value in found.names}, f"{name} is to import it from {module}"


def test_the_hot_modules_say_nothing_that_the_compiler_leaves_out(build: Any) -> None:
    """The cause of a raised exception, and that a variable lives until it is deleted."""
    for name in build.modules():
        path = ROOT / f"{name.replace('.', '/')}.py"
        for found in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not isinstance(found, ast.Raise) or found.cause is None, f"{name}:{found.lineno}: use caused_by"
            if isinstance(found, ast.Delete):
                assert not any([isinstance(target, ast.Name) for target in found.targets]), f"{name}:{found.lineno}"


def test_a_compiled_wheel_is_made_of_the_translated_modules(
    build: Any, wheels: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "compiled", lambda folder: {"ext_modules": ["one"]})
    assert build.build_wheel("here") == "the.whl"
    assert wheels == [{"ext_modules": ["one"]}]
    assert build.arguments == {}


def test_where_compiling_fails_the_wheel_is_plain(
    build: Any, wheels: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "compiled", _unable)
    assert build.build_wheel("here") == "the.whl"
    assert wheels == [{}]
    assert "nothing is compiled" in capsys.readouterr().err


def test_where_it_must_not_fail_the_failure_comes_out(
    build: Any, wheels: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMFLOW_COMPILE", "1")
    monkeypatch.setattr(build, "compiled", _unable)
    with pytest.raises(SystemExit, match="'cc' failed"):
        build.build_wheel("here")
    assert wheels == []


def test_nothing_is_compiled_where_that_is_not_wanted(
    build: Any, wheels: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VMFLOW_COMPILE", "0")
    monkeypatch.setattr(build, "compiled", _unable)
    assert build.build_wheel("here") == "the.whl"
    assert wheels == [{}]
    assert build.compiler_requirements(build._COMPILER) == []


def test_the_compiler_is_asked_for_only_where_it_can_be_used(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_c_compiler", lambda: "/usr/bin/cc")
    assert [
        requirement.partition("=")[0].rstrip(">") for requirement in build.compiler_requirements(build._COMPILER)
    ] == [
        "mypy[mypyc]",
        "numpy",
        "attrs",
    ]
    monkeypatch.setattr(build, "_c_compiler", lambda: None)
    assert build.compiler_requirements(build._COMPILER) == []
    monkeypatch.setenv("VMFLOW_COMPILE", "1")
    assert build.compiler_requirements(build._COMPILER) != []


def test_a_word_that_says_nothing_is_refused(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMFLOW_COMPILE", "yes")
    with pytest.raises(SystemExit, match="'yes'"):
        build.wanted()


# The files of a checkout, without those that arise from its use.
CARRIED = (".ci", "docs", "examples", "graph_mode", "instructions", "streams", "tests", "vmflow")


@pytest.mark.slow
def test_the_source_archive_is_a_checkout(build: Any, tmp_path: Path) -> None:
    """All folders and documents are in it, and the links, without which the tests could not run in it."""
    pytest.importorskip("setuptools", minversion="80", reason="the build needs setuptools 80, of the dev extra")
    checkout, made = tmp_path / "checkout", tmp_path / "made"
    made.mkdir()
    leftovers = shutil.ignore_patterns("__pycache__", "*.py[cod]", "*.so")
    for name in CARRIED:
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=leftovers)
    for pattern in ("*.md", "*.py", "*.toml", "LICENSE", "MANIFEST.in"):
        for path in ROOT.glob(pattern):
            shutil.copy(path, checkout)
    files = [path for path in checkout.rglob("*") if path.is_symlink() or path.is_file()]
    wanted = {path.relative_to(checkout).as_posix() for path in files}
    program = "import sys, compiled_core; print(compiled_core.build_sdist(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(made)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = made.iterdir()
    with tarfile.open(archive) as opened:
        found = {member.name.partition("/")[2]: member for member in opened.getmembers() if not member.isdir()}
    assert wanted - found.keys() == set()
    more = {name for name in found.keys() - wanted if not name.startswith("vmflow.egg-info/")}
    assert more == {"PKG-INFO", "setup.cfg"}  # which setuptools writes
    links = {name: value.linkname for name, value in found.items() if value.issym()}
    assert links == {f"vmflow/{name}": f"../{name}" for name in ("graph_mode", "instructions", "streams")}
    assert found[".ci/run"].mode & 0o100


@pytest.mark.slow
@pytest.mark.timeout(600)  # mypyc looks at all of them, without a cache
def test_the_hot_modules_compile(build: Any, tmp_path: Path) -> None:
    """Only translated to C: it is where unsupported constructs show, and needs no C compiler."""
    pytest.importorskip("mypyc", reason="mypyc comes with the dev extra")
    program = "import sys, pathlib, compiled_core; compiled_core.translate(pathlib.Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
