"""How tensors are shown."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import in_thread
from vmflow import nn

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (flow.tensor(1.5), "tensor(1.5000)"),
        (flow.tensor(2.0), "tensor(2.)"),
        (flow.tensor(3), "tensor(3)"),
        (flow.tensor(True), "tensor(True)"),
        (flow.tensor(NAN), "tensor(nan)"),
        (flow.tensor([1.0, 2.0, 3.0]), "tensor([1., 2., 3.])"),
        (flow.tensor([0.5, 1.0, -2.25]), "tensor([ 0.5000,  1.0000, -2.2500])"),
        (flow.tensor([1, 200, -3]), "tensor([  1, 200,  -3])"),
        (flow.tensor([True, False]), "tensor([ True, False])"),
        (flow.tensor([0.0, 0.0]), "tensor([0., 0.])"),
        (flow.tensor([NAN, INF, -INF, 1.0]), "tensor([nan, inf, -inf, 1.])"),
        (flow.tensor([NAN, 0.5]), "tensor([   nan, 0.5000])"),
        (flow.tensor([1e-8, 1.0]), "tensor([1.0000e-08, 1.0000e+00])"),
        (flow.tensor([1e-3, 1e3]), "tensor([1.0000e-03, 1.0000e+03])"),
        (flow.tensor([1.0, 1e4]), "tensor([1.0000e+00, 1.0000e+04])"),
        (flow.tensor([16777216.0]), "tensor([16777216.])"),
        (flow.tensor([1e30]), "tensor([1.0000e+30])"),
        (flow.tensor([1 + 2j, 0.5 - 1j]), "tensor([1.0000+2.j, 0.5000-1.j])"),
        (flow.tensor([[1.0, 2.0], [3.0, 4.0]]), "tensor([[1., 2.],\n        [3., 4.]])"),
        (flow.zeros(0), "tensor([])"),
        (flow.zeros(2, 0), "tensor([], size=(2, 0))"),
        (flow.zeros(0, dtype=flow.int64), "tensor([], dtype=vmflow.int64)"),
        (flow.ones(2, dtype=flow.float64), "tensor([1., 1.], dtype=vmflow.float64)"),
        (flow.tensor([0.5], dtype=flow.bfloat16), "tensor([0.5000], dtype=vmflow.bfloat16)"),
        (flow.ones(2, dtype=flow.int32), "tensor([1, 1], dtype=vmflow.int32)"),
        (flow.ones(2, requires_grad=True), "tensor([1., 1.], requires_grad=True)"),
        (flow.ones(2, requires_grad=True).exp(), "tensor([2.7183, 2.7183], grad_fn=<exp>)"),
        (flow.ones(2, 3).T[1:], "tensor([[1., 1.],\n        [1., 1.]])"),
        (nn.Parameter(flow.ones(1)), "Parameter containing:\ntensor([1.], requires_grad=True)"),
    ],
)
def test_as_pytorch_shows_it(tensor: flow.Tensor, text: str) -> None:
    assert repr(tensor) == text


@pytest.mark.host
def test_only_the_borders_of_large_tensors_are_shown() -> None:
    assert repr(flow.arange(2000)) == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"
    lines = repr(flow.zeros(500, 500)).splitlines()
    assert len(lines) == 7
    assert lines[3].strip() == "...,"
    # Hidden elements have no influence on the format.
    array = flow.zeros(3000)
    array[1500] = 1e-9
    assert repr(array).startswith("tensor([0., 0., 0.,  ...")
    assert repr(flow.arange(1000)).count("\n") > 20


@pytest.mark.host
def test_long_rows_are_broken_and_aligned() -> None:
    lines = repr(flow.arange(40.0)).splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("        ")


@pytest.mark.host
async def test_a_value_that_is_not_there_is_not_waited_for() -> None:
    tensor = flow.randn(300_000).exp().sort().values
    assert repr(tensor) == "tensor(..., size=(300000,), pending)"
    assert repr((await tensor)[:0]) == "tensor([])"


def test_a_failure_is_shown_and_not_raised() -> None:
    tensor = flow.ones(2)[flow.tensor([5])]
    assert repr(tensor).startswith("tensor(..., size=(1,), failed=IndexError('index 5 is out of bounds")
    with pytest.raises(IndexError):
        tensor.numpy()


@pytest.mark.host
def test_in_a_graph_that_is_being_built() -> None:
    shown: list[str] = []

    class Printing(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            shown.extend([repr(x), f"{x.sum()}", str([x.double()])])
            with pytest.raises(RuntimeError, match="while the graph is being built"):
                f"{x.sum():.2f}"
            return x * 2

    assert Printing()(flow.ones(3)).tolist() == [2, 2, 2]
    assert shown[:2] == ["tensor(..., size=(3,), lazy)", "tensor(..., size=(), lazy)"]
    assert shown[2] == "[tensor(..., size=(3,), lazy, dtype=vmflow.float64)]"


def test_formatting_single_elements() -> None:
    assert f"{flow.tensor(1.23456):.2f}" == "1.23"
    assert f"{flow.tensor(7):03d}" == "007"
    assert f"{flow.ones(1, device='cpu')}" == "tensor([1.])"
    assert f"{flow.ones((), device='meta')}" == "tensor(..., size=(), device='meta')"
    assert str(flow.ones(1, device="cpu")) == "tensor([1.])"
    with pytest.raises(TypeError):
        f"{flow.ones(2):.2f}"


# Options


@pytest.fixture
def restored() -> Iterator[None]:
    with flow.printoptions():
        yield


@pytest.mark.host
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": 2},
        {"precision": 0},
        {"threshold": 5},
        {"edgeitems": 1, "threshold": 3},
        {"linewidth": 40},
        {"sci_mode": True},
        {"sci_mode": False},
        {"profile": "short"},
        {"profile": "full"},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (3,), (30,), (2, 30), (1200,), (4, 5, 6), (3, 1, 500), (0, 3)], ids=str)
@pytest.mark.usefixtures("restored")
def test_options_are_pytorchs(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(0)
    torch.set_printoptions(profile="default")
    torch.set_printoptions(**options)
    flow.set_printoptions(**options)
    try:
        for scale in (1, 1e-3, 1e5, 1e9):
            array: Any = (generator.normal(size=shape) * scale).astype(np.float32)
            assert repr(flow.tensor(array)) == repr(torch.tensor(array)).replace("torch.", "vmflow.")
        array = generator.integers(-100, 100, shape)
        assert repr(flow.tensor(array)) == repr(torch.tensor(array)).replace("torch.", "vmflow.")
        array = generator.normal(size=shape) + 2j
        shown = repr(flow.tensor(array.astype(np.complex64)))
        assert shown == repr(torch.tensor(array.astype(np.complex64))).replace("torch.", "vmflow.")
    finally:
        torch.set_printoptions(profile="default")


@pytest.mark.host
@pytest.mark.usefixtures("restored")
def test_options_can_be_asked_for_and_are_checked() -> None:
    flow.set_printoptions(precision=2, sci_mode=True)
    assert flow.get_printoptions()["precision"] == 2
    flow.set_printoptions(linewidth=40)
    assert flow.get_printoptions() == {
        "precision": 2,
        "threshold": 1000,
        "edgeitems": 3,
        "linewidth": 40,
        "sci_mode": None,
    }
    with flow.printoptions(precision=7):
        assert repr(flow.tensor(0.5)) == "tensor(0.5000000)"
    assert repr(flow.tensor(0.5)) == "tensor(0.50)"
    before = flow.get_printoptions()
    with pytest.raises(ValueError, match="no profile 'long'; known are default, short, full"):
        flow.set_printoptions(precision=1, profile="long")
    with pytest.raises(ValueError, match="edgeitems cannot be negative"):
        flow.set_printoptions(precision=1, edgeitems=-1)
    with pytest.raises(TypeError, match=r"precision must be an integer, not 1\.5"):
        flow.set_printoptions(precision=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sci_mode must be"):
        flow.set_printoptions(sci_mode=1)  # type: ignore[arg-type]
    assert flow.get_printoptions() == before


@pytest.mark.host
@pytest.mark.usefixtures("restored")
async def test_options_of_a_block_hold_for_its_task() -> None:
    """Also where the blocks of two tasks overlap, and where one of them changes its options."""
    value, entered, left = flow.tensor(1 / 3), asyncio.Event(), asyncio.Event()

    async def first() -> None:
        with flow.printoptions(precision=1):
            entered.set()
            await left.wait()
            assert repr(value) == "tensor(0.3)"

    async def second() -> None:
        await entered.wait()
        with flow.printoptions(precision=2):
            flow.set_printoptions(precision=6)
            assert repr(value) == "tensor(0.333333)"
        assert repr(value) == "tensor(0.3333)"
        left.set()

    await asyncio.gather(first(), second())
    assert repr(value) == "tensor(0.3333)"


@pytest.mark.host
def test_options_outside_of_blocks_hold_for_the_whole_process() -> None:
    value = flow.tensor(1 / 3)
    try:
        in_thread(lambda: flow.set_printoptions(precision=2))
        assert repr(value) == "tensor(0.33)"
        with flow.printoptions(precision=1):
            assert in_thread(lambda: repr(value)) == "tensor(0.33)"
    finally:
        flow.set_printoptions(profile="default")


@pytest.mark.host
def test_parts_that_do_not_fit_behind_the_values_have_their_own_line() -> None:
    tensor = flow.tensor([0.123] * 8, dtype=flow.float64, requires_grad=True)
    lines = repr(tensor).splitlines()
    assert lines[-1] == "       dtype=vmflow.float64, requires_grad=True)"


# Attributes that are listed


def test_dir_lists_public_names_only() -> None:
    for tensor in (flow.ones(2), nn.Parameter(flow.ones(2)), nn.Buffer(flow.ones(2))):
        names = dir(tensor)
        assert not [name for name in names if name.startswith("_") and not name.endswith("__")]
        assert {"shape", "add_", "backward", "__add__", "__dlpack__"} <= set(names)
    parameter: Any = nn.Parameter(flow.ones(2))
    parameter.note = "mine"
    assert "note" in dir(parameter)
