"""Workflows, templates and the tier of short tests agree with pyproject.toml, the README and the files that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

import vmflow

pytestmark = pytest.mark.host

ROOT: Final = Path(__file__).resolve().parents[1]
GITHUB: Final = ROOT / ".github"

if not GITHUB.is_dir():
    pytest.skip("the project's own files are elsewhere", allow_module_level=True)

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

YAML_FILES: Final = sorted([*GITHUB.rglob("*.yml"), ROOT / ".pre-commit-config.yaml"])
WORKFLOWS: Final = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS: Final = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.name != "config.yml"]
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# A script of the project, as a command of a workflow starts it.
_SCRIPT: Final = re.compile(r"(?:^|[\s;&(])(\.ci/[\w.-]+)")


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _workflow(name: str) -> dict[str, Any]:
    return dict(_read(GITHUB / "workflows" / name))


def _commands(workflow: dict[str, Any]) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


def _classified_versions() -> list[str]:
    """The versions of Python in pyproject.toml's classifiers."""
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", text) for text in PROJECT["classifiers"]]
    return [match[1] for match in found if match is not None]


def _tested_versions() -> tuple[list[str], list[str]]:
    """The versions of Python whose tests on Linux have to pass, and those that may fail."""
    job = _workflow("ci.yml")["jobs"]["tests"]
    versions = job["strategy"]["matrix"]["python"]
    may_fail = re.findall(r"matrix\.python == '(3\.\d+)'", job["continue-on-error"])
    return [version for version in versions if version not in may_fail], may_fail


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_yaml_parses(path: Path) -> None:
    assert isinstance(_read(path), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_few_permissions_and_limits_of_time(path: Path) -> None:
    workflow = _read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert isinstance(job["timeout-minutes"], int)
        assert all(["run" in step or re.fullmatch(r"[\w/-]+@[\w.]+", step["uses"]) for step in job["steps"]])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_that_workflows_call_exist(path: Path) -> None:
    for command in _commands(_read(path)):
        for script in _SCRIPT.findall(command):
            assert (ROOT / script).stat().st_mode & 0o111, script


def test_a_script_is_found_in_a_command() -> None:
    assert _SCRIPT.findall(".ci/run") == [".ci/run"]
    assert _SCRIPT.findall("x=1\n.ci/devices lazy && .ci/newer-python") == [".ci/devices", ".ci/newer-python"]


def test_the_tested_versions_of_python_are_the_classified_ones() -> None:
    assert _tested_versions()[0] == _classified_versions()
    assert PROJECT["requires-python"] == f">={_classified_versions()[0]}"


def test_versions_that_may_fail_are_not_classified() -> None:
    may_fail = _tested_versions()[1]
    assert may_fail
    assert not set(may_fail) & set(_classified_versions())


def test_wheels_are_built_for_the_classified_versions_with_the_compiled_core() -> None:
    steps = _workflow("wheels.yml")["jobs"]["wheels"]["steps"]
    settings = next(step["env"] for step in steps if step.get("uses", "").startswith("pypa/cibuildwheel@"))
    assert settings["CIBW_BUILD"].split() == [f"cp{text.replace('.', '')}-*" for text in _classified_versions()]
    assert settings["CIBW_ENVIRONMENT"] == "VMFLOW_COMPILE=1"
    for name in re.findall(r"tests/[\w/.]+", settings["CIBW_TEST_COMMAND"]):
        assert (ROOT / name).exists(), name


def test_the_tests_are_run_by_the_command_in_the_readme() -> None:
    (command,) = [text for text in _commands(_workflow("ci.yml")) if "README.md" in text]
    lookup = "grep -m 1 -- '-m pytest' README.md"
    assert lookup in command
    assert lookup in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    first = next(line for line in lines if "-m pytest" in line)
    assert first.startswith("python3 -m venv .venv-test && .venv-test/bin/pip install --editable '.[test]' && ")
    assert first.endswith(".venv-test/bin/python -m pytest -rs -n auto")


def test_one_job_runs_everything() -> None:
    (job,) = [job for job in _workflow("ci.yml")["jobs"].values() if {"run": ".ci/run"} in job["steps"]]
    assert job["runs-on"] == "ubuntu-latest"
    assert job["timeout-minutes"] == 60


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_have_the_fields_that_github_requires(path: Path) -> None:
    form = _read(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names) > 0
    assert all([field["type"] in ("textarea", "input", "dropdown", "checkboxes") for field in fields])
    assert all([field["attributes"]["label"] for field in fields])


def test_hooks_before_a_commit_are_local() -> None:
    (repository,) = _read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    tools = {hook["entry"].split()[0] for hook in repository["hooks"] if hook["language"] == "system"}
    pinned = [text.partition("==")[0].partition("[")[0] for text in PROJECT["optional-dependencies"]["dev"]]
    assert tools <= set(pinned)


def test_all_text_passes_the_hooks_for_ends_of_files_and_lines() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    config = _read(ROOT / ".pre-commit-config.yaml")
    left_out = re.compile(config["exclude"])
    patterns = [
        re.compile(hook["entry"].encode(), re.MULTILINE | re.DOTALL if "args" in hook else re.MULTILINE)
        for hook in config["repos"][0]["hooks"]
        if hook["language"] == "pygrep"
    ]
    assert len(patterns) == 2
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name and not left_out.match(name)]
    texts = {path: path.read_bytes() for path in paths if path.is_file() and not path.is_symlink()}
    assert len(texts) > 500
    wrong = [
        str(path.relative_to(ROOT))
        for path, text in texts.items()
        if text and b"\0" not in text and any([pattern.search(text) for pattern in patterns])
    ]
    assert wrong == []


def test_the_version_is_the_same_in_pyproject_and_in_the_package() -> None:
    assert PROJECT["version"] == vmflow.__version__
    assert f"## {vmflow.__version__} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_links_of_the_project_pages_lead_to_files() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)", text):
            assert "://" in target or (ROOT / target).exists(), f"{name} links to {target}"


# The tier of short tests


def test_the_files_of_the_short_tier_exist() -> None:
    named = re.findall(r'^    "(tests/[^"]+)",$', (ROOT / "conftest.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(set(named)) == len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(("marker", "collected"), [("core", False), ("not slow", True)])
def test_the_short_tier_does_not_import_other_files(tmp_path: Path, marker: str, collected: bool) -> None:
    """A small project with the same conftest.py, one file of the tier and one other."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("tests/engine/test_ready.py", "tests/ops/test_special.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("import pytest\ndef test_short(): pass\n@pytest.mark.slow\ndef test_slow(): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    core: short\n    slow: long\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", marker, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests/engine/test_ready.py::test_short" in done.stdout
    assert ("tests/ops/test_special.py::test_short" in done.stdout) == collected
    assert "test_slow" not in done.stdout


@pytest.mark.parametrize("script", ["run", "compiled", "devices", "newer-python"])
def test_the_tests_that_scripts_name_exist(script: str) -> None:
    text = "\n".join(line for line in (ROOT / ".ci" / script).read_text().splitlines() if not line.startswith("#"))
    named = re.findall(r"tests/[\w./{},*-]*", text)
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash expands the braces")
    echo = f"echo {' '.join(named)}"
    paths = subprocess.run([bash, "-c", echo], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert not [path for path in paths if not (ROOT / path).exists()]
