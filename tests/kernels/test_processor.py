"""The system's report on the processor's caches, and the values that replace a missing one."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmflow.kernels.native.processor import USUAL_CACHE, has_quick_wide_vectors, last_level_cache


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (("32K", "512K", "16384K"), 16 << 20),
        (("48K", "2M"), 2 << 20),
        (("65536",), 65536),
        ((), USUAL_CACHE),
        (("0K",), USUAL_CACHE),
        (("",), USUAL_CACHE),
        (("much",), USUAL_CACHE),
    ],
)
def test_the_largest_cache_counts(told: tuple[str, ...], found: int, tmp_path: Path) -> None:
    for number, text in enumerate(told):
        (tmp_path / f"index{number}").mkdir()
        (tmp_path / f"index{number}" / "size").write_text(text + "\n")
    assert last_level_cache(str(tmp_path)) == found


def test_this_processor_has_one() -> None:
    assert last_level_cache() >= 1 << 16


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_vbmi2 amx_tile\n\nprocessor\t: 1\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512cd\n\nprocessor\t: 1\nflags\t\t: avx512_vbmi2\n", False),
        ("processor\t: 0\nbugs\t\t: avx512_vbmi2\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd\n", False),
        ("", False),
    ],
)
def test_wide_vectors_are_used_where_they_cost_nothing(tmp_path: Path, text: str, wide: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert has_quick_wide_vectors(str(tmp_path / "cpuinfo")) == wide


def test_where_nobody_tells_of_the_processor_vectors_are_short(tmp_path: Path) -> None:
    assert not has_quick_wide_vectors(str(tmp_path / "nothing"))
