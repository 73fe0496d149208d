"""The folder of compiled libraries, which are code: it is used only if no other user can write to it or replace it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import vmflow as flow
from vmflow.kernels.native import cache
from vmflow.kernels.native.compiling import CompileError, compiler_command
from vmflow.kernels.native.loading import Loader

pytestmark = pytest.mark.host

SOURCE = "#include <stdint.h>\nvoid answer(int64_t *to) { *to = 42; }\n"

# Another user.
STRANGER = 12345


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that VMFLOW_CACHE_DIR lies two levels below."""
    monkeypatch.setenv("VMFLOW_CACHE_DIR", str(tmp_path / "above" / "chosen"))
    monkeypatch.setattr(cache, "_warned", set())
    folder = tmp_path / "above" / "chosen" / "kernels"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent, folder.parent.parent):
        each.chmod(0o755)
    return tmp_path / "above"


def answered() -> bool:
    """Whether a kernel is compiled and computes."""
    loader = Loader()
    loader.mode = "wait"
    library = loader.request(SOURCE)
    found = np.zeros(1, np.int64)
    assert library is not None
    library.function("answer")(found.ctypes)
    return bool(found[0] == 42)


@pytest.fixture
def works() -> None:
    try:
        compiler_command()
    except CompileError as error:
        pytest.skip(str(error))


def give_away(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder to another user")
    os.chown(path, STRANGER, -1)


def in_sticky(base: Path, spoil: Callable[[], None]) -> None:
    base.chmod(0o1777)
    spoil()


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "all write to the folder": (
        lambda base: (base / "chosen/kernels").chmod(0o777),
        "chosen/kernels, whose mode is 777",
    ),
    "a group writes to it": (lambda base: (base / "chosen/kernels").chmod(0o770), "chosen/kernels, whose mode is 770"),
    "sticky is not enough for it": (lambda base: (base / "chosen/kernels").chmod(0o1777), "whose mode is 1777"),
    "all write to its parent": (lambda base: (base / "chosen").chmod(0o777), "above/chosen, whose mode is 777"),
    "a group writes further up": (lambda base: base.chmod(0o775), "above, whose mode is 775"),
    "it is another's": (lambda base: give_away(base / "chosen/kernels"), f"kernels belongs to the user {STRANGER}"),
    "its parent is another's": (lambda base: give_away(base / "chosen"), f"chosen belongs to the user {STRANGER}"),
    "another's below a sticky one": (
        lambda base: in_sticky(base, lambda: give_away(base / "chosen")),
        f"chosen belongs to the user {STRANGER}",
    ),
    "all write below a sticky one": (
        lambda base: in_sticky(base, lambda: (base / "chosen").chmod(0o1777)),
        "chosen, whose mode is 1777",
    ),
}


@pytest.mark.parametrize("how", sorted(BAD))
def test_a_folder_that_others_can_change_is_not_used(
    how: str, base: Path, works: None, caplog: pytest.LogCaptureFixture
) -> None:
    spoil, problem = BAD[how]
    spoil(base)
    folder = base / "chosen" / "kernels"
    with pytest.raises(cache.Untrusted, match=problem):
        cache.open_folder(str(folder))
    assert answered()
    assert answered()
    assert list(folder.iterdir()) == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert problem in record.getMessage()
    assert f"not kept in {folder}" in record.getMessage()


def test_a_library_that_a_stranger_has_put_there_is_not_run(base: Path, works: None) -> None:
    folder = base / "chosen" / "kernels"
    loader = Loader()
    key = loader._key(compiler_command(), SOURCE)
    with cache.open_folder(str(folder)) as place:
        cache.store(place, key, b"whatever a stranger wants to be run")
    base.chmod(0o777)
    before = (folder / f"{key}.so").read_bytes()
    assert answered()
    assert (folder / f"{key}.so").read_bytes() == before  # neither loaded, which fails and removes it, nor replaced


@pytest.mark.parametrize("mode", [0o1777, 0o1770])
def test_a_folder_of_ours_in_a_sticky_one_is_used(mode: int, base: Path, works: None) -> None:
    base.chmod(mode)
    assert answered()
    assert len(list((base / "chosen" / "kernels").iterdir())) == 1


def test_links_are_resolved_before_their_targets_are_checked(
    base: Path, works: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(base / "chosen")
    monkeypatch.setenv("VMFLOW_CACHE_DIR", str(tmp_path / "link"))
    assert cache.usable_path() == str(base / "chosen" / "kernels")
    base.chmod(0o777)
    assert cache.usable_path() is None


def test_missing_folders_are_made_for_this_user_alone(base: Path) -> None:
    shutil.rmtree(base / "chosen")
    base.chmod(0o777)
    with pytest.raises(cache.Untrusted):
        cache.open_folder(str(base / "chosen" / "kernels"))
    assert list(base.iterdir()) == []  # nothing is made where others can write
    base.chmod(0o755)
    with cache.open_folder(str(base / "chosen" / "kernels")):
        pass
    for each in (base / "chosen", base / "chosen" / "kernels"):
        assert each.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_was_replaced_meanwhile_is_not_used(base: Path) -> None:
    """The folder that was checked is used, even if its name leads elsewhere by then."""
    folder = base / "chosen" / "kernels"
    with cache.open_folder(str(folder)) as place:
        folder.rename(base / "moved")
        folder.mkdir()
        name = cache.store(place, "key", b"a library")
        assert cache.find(place, "key") == name
        assert (base / "moved" / name).exists()
        assert list(folder.iterdir()) == []
        if os.path.isdir("/proc/self/fd"):
            assert Path(place.place(name)).read_bytes().startswith(b"a library")


def test_a_link_in_place_of_a_library_is_not_followed(base: Path) -> None:
    folder = base / "chosen" / "kernels"
    with cache.open_folder(str(folder)) as place:
        name = cache.store(place, "key", b"a library")
        (folder / name).rename(base / "elsewhere")
        (folder / name).symlink_to(base / "elsewhere")
        assert cache.find(place, "key") is None


def test_the_private_folder_is_removed_at_the_end_by_its_own_process(base: Path, works: None, tmp_path: Path) -> None:
    base.chmod(0o777)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    program = """
    import os
    import warnings
    from vmflow.kernels.native.loading import LOADER
    library = LOADER.request("#include <stdint.h>\\nvoid answer(int64_t *to) { *to = 42; }\\n")
    assert library.loaded is not None
    # The thread that compiles is still there, and Python warns of that since 3.12.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        print(len(os.listdir(os.environ["TMPDIR"])))
    """
    # The folder is not used, which is said once.
    outside = {**os.environ, "VMFLOW_JIT": "1", "TMPDIR": str(temporary)}
    outside["PYTHONPATH"] = str(Path(flow.__file__).parent.parent)
    call = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(call, capture_output=True, text=True, env=outside, timeout=60, check=True)
    assert done.stdout.split() == ["1"]
    (line,) = done.stderr.splitlines()
    assert "others can write to" in line
    assert list(temporary.iterdir()) == []
