"""The stage that makes the device late where luck would hide a mistake, and compares results all the same."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

import numpy as np

import vmflow as flow
from tests.benchmarks.models import GraphOf
from tests.cuda.multi_stream import Program
from vmflow import nn
from vmflow.instructions.stream_events import StreamWait

from .delays import EMULATED_STEPS, GPU_STEPS, late_add, late_copy
from .findings import Findings
from .replays import replays

ROUNDS: Final = 20
SMALL_ROUNDS: Final = 3
PROGRAMS: Final = 60
SMALL_PROGRAMS: Final = 2
PROGRAM_STEPS: Final = 60

# The part of the device's memory that tensors may take while it is to run out; an emulated device has little.
FRACTION: Final = 0.2


def run(findings: Findings) -> None:
    """See the module."""
    task = findings.task
    rounds = SMALL_ROUNDS if task.small else ROUNDS
    steps = EMULATED_STEPS if task.emulated else GPU_STEPS
    findings.fact("rounds", rounds)
    for program in (other_stream, memory_reused, read_by_host, pinned_source, two_readers):
        for seed in range(rounds):
            with findings.check(f"{program.__name__}, seed {seed}"):
                generator = random.Random(seed)
                program(generator.randrange(200, 3000) if task.small else generator.randrange(10_000, 4_000_000), steps)
    if not task.emulated:
        # An emulated device would stop working, for it looks at the order itself.
        with findings.check("delays show where nothing waits"):
            without_waiting(rounds, steps)
    for name, wrong in WRONG.items():
        with findings.check(f"the error of {name}"):
            reported(*wrong)
    for seed in range(SMALL_PROGRAMS if task.small else PROGRAMS):
        with findings.check(f"random program {seed}"):
            LateProgram(seed, steps).run(PROGRAM_STEPS // 3 if task.small else PROGRAM_STEPS)
    with findings.check("a graph under memory pressure"):
        graph_under_pressure(findings, 4 if task.small else 30)
    with findings.check("running out of memory"):
        out_of_memory()


# Delays on one stream while another uses its memory


def other_stream(size: int, steps: int) -> None:
    """A stream reads memory that another one has not written yet."""
    side = flow.cuda.Stream()
    x = flow.arange(float(size), device="cuda")
    with flow.cuda.stream(side):
        late_add(x, 3, steps)
    y = x * 2
    _equal(y, 2 * (np.arange(size, dtype=np.float32) + 3))


def memory_reused(size: int, steps: int) -> None:
    """Memory goes back to the pool while a late kernel of another stream has still to read it."""
    side = flow.cuda.Stream()
    x = flow.arange(float(size), device="cuda")
    out = flow.zeros(size, device="cuda")
    with flow.cuda.stream(side):
        late_copy(out, x, steps)
    del x
    others = [flow.full((size,), float(number), device="cuda") for number in range(4)]
    _equal(out, np.arange(size, dtype=np.float32))
    for number, other in enumerate(others):
        _equal(other, np.full(size, number, np.float32))


def read_by_host(size: int, steps: int) -> None:
    """The host reads the output of a late kernel."""
    x = flow.zeros(size, device="cuda")
    for number in range(1, 4):
        late_add(x, number, steps)
        _equal(x, np.full(size, number * (number + 1) / 2, np.float32))


def pinned_source(size: int, steps: int) -> None:
    """Page-locked memory is written anew while the copy from it waits behind a late kernel."""
    out = flow.zeros(size, device="cuda")
    source = flow.arange(float(size), device="cpu").pin_memory()
    late_add(out, 1, steps)
    out.copy_(source, non_blocking=True)
    source.fill_(-1)
    _equal(out, np.arange(size, dtype=np.float32))
    _equal(source, np.full(size, -1, np.float32))


def two_readers(size: int, steps: int) -> None:
    """Memory is written by one stream while two others have still to read it."""
    streams = [flow.cuda.Stream(), flow.cuda.Stream()]
    x = flow.arange(float(size), device="cuda")
    outs = [flow.zeros(size, device="cuda") for _ in streams]
    for stream, out in zip(streams, outs, strict=True):
        with flow.cuda.stream(stream):
            late_copy(out, x, steps)
    x.fill_(0)
    for out in outs:
        _equal(out, np.arange(size, dtype=np.float32))
    _equal(x, np.zeros(size, np.float32))


def without_waiting(rounds: int, steps: int) -> None:
    """If streams did not wait for each other, `other_stream` would find it, so that its success says something.

    Raises:
        AssertionError: if all results were right.
    """
    wrong = 0
    with patch.object(StreamWait, "prepare", lambda policy, instruction: None):
        for _ in range(rounds):
            try:
                other_stream(100_000, steps)
            except AssertionError:
                wrong += 1
    flow.synchronize()
    assert wrong, f"{rounds} results were right although no stream waited: the delays prove nothing"


class LateProgram(Program):
    """A random program on several streams, in which tensors are changed late now and then; see `multi_stream`.

    Args:
        seed: decides everything.
        steps: of a delay.
    """

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__(seed, min(flow.cuda.device_count(), 2))
        self._steps = steps

    def unary(self) -> None:
        """Now and then a late copy, which has the dtype of the kernel."""
        pair = self.pick()
        if pair.tensor.device.type != "cuda" or self.random.random() < 0.7:
            super().unary()
            return
        source = pair.tensor.to(flow.float32).contiguous()
        out = flow.zeros(tuple(pair.array.shape), device=pair.tensor.device)
        late_copy(out, source, self._steps // 10 + 1)
        self.add(out.to(flow.float64), pair.array.copy())


# Errors that only the device knows


def _index() -> flow.Tensor:
    return flow.ones(3, device="cuda").index_select(0, flow.tensor([0, 77], device="cuda"))


def _gather() -> flow.Tensor:
    return flow.ones(2, 3, device="cuda").gather(1, flow.tensor([[0], [-44]], device="cuda"))


def _embedding() -> flow.Tensor:
    return nn.functional.embedding(flow.tensor([1, 55], device="cuda"), flow.ones(5, 2, device="cuda"))


def _loss() -> flow.Tensor:
    return nn.functional.cross_entropy(flow.ones(2, 3, device="cuda"), flow.tensor([0, 33], device="cuda"))


def _one_hot() -> flow.Tensor:
    return nn.functional.one_hot(flow.tensor([0, 99], device="cuda"), 4)


# By op: the function of the result, and the index that is wrong.
WRONG: Final[dict[str, tuple[Callable[[], flow.Tensor], int]]] = {
    "index_select": (_index, 77),
    "gather": (_gather, -44),
    "embedding": (_embedding, 55),
    "cross_entropy": (_loss, 33),
    "one_hot": (_one_hot, 99),
}


def reported(wrong: Callable[[], flow.Tensor], value: int) -> None:
    """A wrong index is an error where the result is read, and the device works on.

    Args:
        wrong: makes the result.
        value: of the index, which the error tells.

    Raises:
        AssertionError: if there is no such error.
    """
    said = ""
    try:
        wrong().cpu().numpy()
    except (IndexError, ValueError) as error:
        said = str(error)
    assert str(value) in said, f"the error says {said!r}"
    assert (flow.ones(3, device="cuda") + 1).tolist() == [2.0, 2.0, 2.0]


# Memory


def _formula(x: flow.Tensor, weight: flow.Tensor) -> flow.Tensor:
    return ((x * weight + 1).relu() * 0.5 - x).sum(1)


def graph_under_pressure(findings: Findings, rounds: int) -> None:
    """A captured graph is replayed while other tensors come and go, all of them full of nan."""
    weight = flow.arange(64.0, device="cuda") / 64
    step = GraphOf(_formula)
    graphs = 0
    held: list[flow.Tensor] = []
    for number in range(rounds):
        given = np.random.default_rng(number).standard_normal((32, 64)).astype(np.float32)
        with replays() as counted:
            found = step(flow.tensor(given, device="cuda"), weight).cpu().numpy()
        graphs += counted.graphs
        wanted = _formula(flow.tensor(given, device="cuda"), weight).cpu().numpy()
        np.testing.assert_array_equal(found, wanted)
        # The sizes of the graph's own memory.
        held = [flow.full((32, 64), float("nan"), device="cuda") for _ in range(1 + number % 5)]
        if number % 3 == 2:
            held.clear()
            gc.collect()
            flow.cuda.empty_cache()
    del held
    findings.fact("graphs launched under memory pressure", graphs)
    assert graphs >= rounds - 1, f"{graphs} of {rounds} calls were launched as a graph"


def out_of_memory() -> None:
    """Too large a tensor fails alone; tensors up to the limit, too, and everything works when they are gone."""
    _, total = flow.cuda.mem_get_info()
    kept = flow.arange(1000.0, device="cuda")
    _fails(lambda: _touched(2 * total))
    flow.cuda.set_per_process_memory_fraction(FRACTION)
    try:
        piece = int(total * FRACTION / 8)
        held: list[flow.Tensor] = []

        def fill() -> None:
            for _ in range(12):
                held.append(_touched(piece))

        _fails(fill)
        assert len(held) > 3, f"only {len(held)} tensors of an eighth of the memory fit in"
        held.clear()
        gc.collect()
        _touched(piece)
    finally:
        flow.cuda.set_per_process_memory_fraction(1.0)
    _equal(kept, np.arange(1000, dtype=np.float32))


def _touched(size: int) -> flow.Tensor:
    """Memory whose last byte has been written and read."""
    memory = flow.empty(size, dtype=flow.uint8, device="cuda")
    memory[-1:].fill_(3)
    assert memory[-1].item() == 3
    return memory


def _fails(make: Callable[[], object]) -> None:
    try:
        make()
    except MemoryError:
        return
    raise AssertionError("memory did not run out")


def _equal(tensor: flow.Tensor, wanted: Any) -> None:
    np.testing.assert_array_equal(tensor.cpu().numpy(), wanted)
