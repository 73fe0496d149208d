"""What the system says of the processor's caches, and what is taken where it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmflow.codegen.processor import USUAL_CACHE, last_level_cache


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (("32K", "512K", "16384K"), 16 << 20),
        (("48K", "2M"), 2 << 20),
        (("65536",), 65536),
        ((), USUAL_CACHE),
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
