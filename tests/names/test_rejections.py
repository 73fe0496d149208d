"""Wrong calls raise errors that name the function, and PyTorch refuses them, too; see `rejections`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vmflow as flow

from .rejections import ACCEPTED, REJECTED, STRICTER, operands

try:
    import torch
except ImportError:
    torch = None

pytestmark = pytest.mark.host

ARRAYS = operands()
ROWS = [row for row in REJECTED.strip().split("\n") if row]
STRICT = STRICTER.strip().split("\n")
TAKEN = [row for rows in ACCEPTED.values() for row in rows.strip().split("\n")]


def evaluated(call: str, library: Any) -> Any:
    """The result of a call, or what it raises, also when the values are looked at."""
    nn = library.nn
    names = {"t": library, "F": nn.functional, "L": library.linalg, "nn": nn, "U": nn.utils, "I": nn.init}
    names |= {"optim": library.optim, "LR": library.optim.lr_scheduler, "D": library.distributions}
    names |= {"G": library.fft, "data": library.utils.data, "lin": nn.Linear(3, 2)}
    names |= {name: library.tensor(array) for name, array in ARRAYS.items() if re.search(rf"\b{name}\b", call)}
    result = eval(call, names)
    for part in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(part, library.Tensor):
            part.detach().tolist()
    return result


def called(call: str) -> Iterator[str]:
    """The names of what is called, from the outermost on: "forward" of a layer is called by the layer's name."""
    node: Any = ast.parse(call, mode="eval").body
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Call):
            node = node.func
            if isinstance(node, ast.Attribute):
                yield node.attr
        else:
            node = node.value


def plain(text: str) -> str:
    """Without what tells the name of a layer from that of its function, or a function from its form in place."""
    return text.lower().replace("_", "")


@pytest.mark.parametrize("row", ROWS + STRICT)
def test_wrong_calls_raise_errors_that_name_the_function(row: str) -> None:
    call, _, other = row.partition(" | ")
    with pytest.raises((ValueError, TypeError, RuntimeError, IndexError)) as raised:
        evaluated(call, flow)
    names = [other] if other else list(called(call))
    assert any([plain(name) in plain(str(raised.value)) for name in names])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS + TAKEN)
def test_pytorch_refuses_them(row: str) -> None:
    if torch is None:
        pytest.skip("PyTorch is not installed")
    with pytest.raises(Exception):  # noqa: B017 - of whatever kind
        evaluated(row.partition(" | ")[0], torch)


@pytest.mark.parametrize("row", TAKEN)
def test_some_are_taken_on_purpose(row: str) -> None:
    with np.errstate(all="ignore"):
        evaluated(row, flow)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", STRICT)
def test_pytorch_takes_them(row: str) -> None:
    if torch is None:
        pytest.skip("PyTorch is not installed")
    evaluated(row, torch)
