"""The build backend: setuptools' backend, extended to compile parts of the project if there is a C compiler.

The compiled parts are an extension module, `vmflow.kernels.native._call_site`, and in wheels the core's modules, which
pyproject.toml lists and mypyc compiles.  The environment variable VMFLOW_COMPILE decides:

    unset   compile if that is possible, else build plain Python and print a note
    0       build plain Python
    1       compile, and fail if that is not possible

Editable installs have the extension module, and are interpreted otherwise.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from setuptools import Extension, build_meta
from setuptools.build_meta import (
    get_requires_for_build_sdist as get_requires_for_build_sdist,
    prepare_metadata_for_build_editable as prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel as prepare_metadata_for_build_wheel,
)

Settings = dict[str, Any] | None

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
_PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# mypyc does not follow the core's imports of other modules, so that their objects have unknown types: following numpy
# alone would take longer than all else.  The `__init__` files of the project's packages are not followed either, so
# compiled modules must import each class from the module that defines it.
_MYPY_SETTINGS = """
[mypy]
follow_imports = skip
ignore_missing_imports = True
[mypy-numpy.*]
follow_imports_for_stubs = True
"""

# The requirements (by the beginning of their names) that compiling needs: mypyc has to understand attrs' classes, and
# the extension module includes numpy's headers.
_COMPILER = ("mypy", "attrs", "numpy")
_HEADERS = ("numpy",)

# Modules that mypyc reads for their types but does not compile.
_SEEN = ("vmflow.native",)

# The arguments that setup.py passes to setuptools.setup; empty unless extension modules are being compiled.
arguments: dict[str, Any] = {}


def modules() -> list[str]:
    """The names of the modules that mypyc compiles, from pyproject.toml."""
    named: list[str] = _PROJECT["tool"]["vmflow"]["compiled-core"]
    return named


def wanted() -> str:
    """The value of VMFLOW_COMPILE: "0", "1", or "auto" if it is unset; exits for any other."""
    value = os.environ.get("VMFLOW_COMPILE", "") or "auto"
    if value not in ("auto", "0", "1"):
        raise SystemExit(f"VMFLOW_COMPILE must be 0 for plain Python, 1 for a compiled core, or unset; not {value!r}")
    return value


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """The requirements for building a wheel: setuptools', and those of mypyc if something will be compiled."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *compiler_requirements(_COMPILER)]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """The requirements for an editable install: setuptools', and numpy if the extension module will be compiled."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *compiler_requirements(_HEADERS)]


def compiler_requirements(names: tuple[str, ...]) -> list[str]:
    """The project's requirements whose names begin with one of `names`, with versions; none if nothing is compiled."""
    if wanted() == "0" or (wanted() == "auto" and _c_compiler() is None):
        return []
    project = _PROJECT["project"]
    requirements = [*project["optional-dependencies"]["dev"], *project["dependencies"]]
    return [requirement for requirement in requirements if requirement.startswith(names)]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build a wheel, with the core compiled if VMFLOW_COMPILE and the machine allow it; return its file name."""
    return _built(build_meta.build_wheel, compiled, wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build an editable install, with the extension module if it can be compiled; return the wheel's file name."""
    return _built(build_meta.build_editable, with_call_site, wheel_directory, config_settings, metadata_directory)


def _built(build: Callable[..., str], compiles: Callable[[Path], dict[str, Any]], *passed_on: Any) -> str:
    """Call `build` with the settings of `compiles`; without them if VMFLOW_COMPILE is 0, or unset and that fails."""
    if wanted() != "0":
        try:
            BUILD.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=BUILD) as folder:
                arguments.update(compiles(Path(folder)))
                return build(*passed_on)
        except (Exception, SystemExit) as error:  # setuptools and mypyc raise either if a compiler does not work
            if wanted() == "1":
                raise
            print(f"vmflow: nothing is compiled, and it will run as plain Python, slower: {error}", file=sys.stderr)
        finally:
            arguments.clear()
    return build(*passed_on)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build setuptools' source archive with the symbolic links by which a checkout finds packages; return its name."""
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    path = Path(sdist_directory, name)
    without = path.rename(path.with_suffix(".without-links"))
    with tarfile.open(without) as archive, tarfile.open(path, "w:gz") as linked:
        for member in archive:
            linked.addfile(member, archive.extractfile(member) if member.isfile() else None)
        for link in links():
            added = tarfile.TarInfo(f"{name.removesuffix('.tar.gz')}/{link.relative_to(ROOT).as_posix()}")
            added.type = tarfile.SYMTYPE
            added.linkname = os.readlink(link)
            linked.addfile(added)
    without.unlink()
    return name


def links() -> list[Path]:
    """The symbolic links to packages whose folders differ from their names, such as vmflow/streams to streams."""
    places: dict[str, str] = _PROJECT["tool"]["setuptools"]["package-dir"]
    paths = [ROOT / package.replace(".", "/") for package in places]
    return [path for path in paths if path.is_symlink()]


def compiled(folder: Path) -> dict[str, Any]:
    """Translate the core to C; return the settings with which setuptools compiles it and the extension module.

    Args:
        folder: an empty folder for all generated files.
    """
    settings = with_call_site(folder)
    os.environ["MYPY_FORCE_COLOR"] = "0"
    settings["ext_modules"] += translate(folder)
    return settings


def with_call_site(folder: Path) -> dict[str, Any]:
    """The settings with which setuptools compiles only the extension module; its build files go into `folder`."""
    if _c_compiler() is None:
        raise RuntimeError("there is no C compiler")
    import numpy  # installed by `compiler_requirements`

    name = "vmflow.kernels.native._call_site"
    source = "vmflow/kernels/native/call_site.c"
    extension = Extension(name, [source], include_dirs=[numpy.get_include()], extra_compile_args=["-O2"])
    return {"ext_modules": [extension], "options": {"build": {"build_base": str(folder / "made")}}}


def translate(folder: Path) -> list[Any]:
    """Translate the core to C by mypyc, in `folder`; return the extension modules to compile."""
    from mypyc.build import mypycify  # installed by `get_requires_for_build_wheel`

    sources = copy_sources(folder, modules())
    others = copy_sources(folder, _SEEN)
    settings = folder / "mypy.ini"
    settings.write_text(_MYPY_SETTINGS, encoding="utf-8")
    with contextlib.chdir(folder):
        extensions: list[Any] = mypycify(
            [f"--config-file={settings}", f"--cache-dir={folder / 'cache'}", *sources, *others],
            only_compile_paths=sources,
            opt_level="2",
            debug_level="0",
            target_dir=str(folder / "c"),
            group_name="vmflow.core",
        )
    for extension in extensions:
        if sys.platform != "win32":
            # With visible symbols another library could replace functions.  So calls would go through a table, which
            # takes a tenth of a small op's time, and the loader would look up some 2,700 names at import.
            extension.extra_compile_args.append("-fvisibility=hidden")
        # setuptools accepts only relative paths.
        extension.sources = [os.path.relpath(source, ROOT) for source in extension.sources]
        extension.depends = []
    return extensions


def copy_sources(folder: Path, names: Iterable[str]) -> list[str]:
    """Copy modules' files to paths that match the modules' names, as mypyc expects; return the paths in `folder`."""
    places: dict[str, str] = _PROJECT["tool"]["setuptools"]["package-dir"]
    sources: list[str] = []
    for module in names:
        package, _, name = module.rpartition(".")
        source = ROOT / places.get(package, package.replace(".", "/")) / f"{name}.py"
        target = folder / f"{module.replace('.', '/')}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        sources.append(f"{module.replace('.', '/')}.py")
    for parent in {path for source in sources for path in (folder / source).parents if folder in path.parents}:
        (parent / "__init__.py").touch()
    return sources


def _c_compiler() -> str | None:
    """The path of the C compiler that Python would use; None if it is not installed."""
    if sys.platform == "win32":
        return "cl"  # found by setuptools, which looks into the registry
    named = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return shutil.which(named.split()[0])
