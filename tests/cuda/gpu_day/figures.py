"""The stage that takes figures: ratios to torch in the same run where torch has a device, else numbers by themselves.

All figures are medians after a warm-up.  Contenders take turns, see `tests.benchmarks.measure`.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import vmflow as flow
from tests.benchmarks.measure import Case, measure
from tests.benchmarks.models import GraphOf, elementwise_chain
from tests.cuda.compiling import loaded_kernels
from vmflow.kernels.cuda import nvrtc
from vmflow.kernels.cuda.sources import CudaKernel, compile_options, full_source
from vmflow.multi_tensor import Update, issue_update
from vmflow.streams.cuda.launching import current
from vmflow.streams.cuda.registry import device_of

from . import figures_torch
from .delays import EMULATED_STEPS, GPU_STEPS, late_add
from .findings import Findings
from .networks import networks
from .replays import replays
from .training import step_of


class Sizes(NamedTuple):
    """The sizes of the timed work.

    Attributes:
        tiny: elements of a small tensor.
        large: elements of one that fills the device.
        matrix: rows and columns.
        repeat: tiny ops and launches in a row.
        steps: training steps in a row.
        rounds: of which the median is taken.
    """

    tiny: int = 64
    large: int = 1 << 26
    matrix: int = 4096
    repeat: int = 1000
    steps: int = 10
    rounds: int = 9


SMALL: Final = Sizes(large=1 << 10, matrix=16, repeat=20, steps=3, rounds=2)

_FLOAT_BYTES: Final = 4
# A chain has two operands and a result.
_CHAIN_ARRAYS: Final = 3
_COMPILED: Final = 8
_MOST_POLLS: Final = 2000


# The piece of work that imports torch, which may end the process: its libraries of CUDA are not those of CuPy.
_IMPORTING: Final = 0


def run(findings: Findings) -> None:
    """See the module."""
    task = findings.task
    sizes = SMALL if task.small else Sizes()
    flow.backends.codegen.mode = "wait"  # no compiler runs beside the timed work
    torch = None
    if task.begin != _IMPORTING + 1:  # it has not ended the process before
        findings.position = _IMPORTING
        with findings.check("importing torch"):
            torch = figures_torch.torch_with_cuda()
            findings.fact("torch", None if torch is None else torch.__version__)
    findings.fact("sizes", sizes._asdict())
    for position, take in enumerate(FIGURES, _IMPORTING + 1):
        if position >= task.begin:
            findings.position = position
            with findings.check(take.__name__):
                take(findings, sizes, torch)


def tiny_op(findings: Findings, sizes: Sizes, torch: Any) -> None:
    """The time of an op on a small tensor, issued again and again."""
    x, y = [flow.full((sizes.tiny,), 0.5, device="cuda") for _ in range(2)]
    contenders: dict[str, Callable[[], Any]] = {"vmflow": _repeated(lambda: x + y, sizes.repeat)}
    if torch is not None:
        contenders["torch"] = figures_torch.tiny_op(torch, sizes.tiny, sizes.repeat)
    _timed(findings, sizes, Case(f"x + y of {sizes.tiny} floats", contenders, sizes.repeat))


def chain(findings: Findings, sizes: Sizes, torch: Any) -> None:
    """Bytes a second of eight elementwise ops, of which one kernel can be made, and of a copy."""
    x, y = [flow.full((sizes.large,), 0.5, device="cuda") for _ in range(2)]
    graph = GraphOf(elementwise_chain)
    out = flow.empty(sizes.large, device="cuda")
    contenders: dict[str, Callable[[], Any]] = {
        "vmflow": _repeated(lambda: elementwise_chain(x, y), sizes.steps),
        "vmflow, graph": _repeated(lambda: graph(x, y), sizes.steps),
        "vmflow, copy": _repeated(lambda: out.copy_(x), sizes.steps),
    }
    if torch is not None:
        contenders |= figures_torch.chain(torch, sizes.large, sizes.steps)
    found = measure(Case("chain", contenders, sizes.steps), sizes.rounds, findings.seconds_left() / 3).microseconds
    arrays = {name: 2 if name.endswith("copy") else _CHAIN_ARRAYS for name in found}
    rates = {name: arrays[name] * _FLOAT_BYTES * sizes.large / taken / 1e3 for name, taken in found.items()}
    findings.figure("bandwidth of a chain of eight ops, and of a copy", "GB/s", rates, "larger is better")


def products(findings: Findings, sizes: Sizes, torch: Any) -> None:
    """Products of square matrices."""
    for dtype in ("float32", "bfloat16"):
        made = [flow.full((sizes.matrix, sizes.matrix), 0.5, device="cuda").to(getattr(flow, dtype)) for _ in range(2)]
        contenders: dict[str, Callable[[], Any]] = {"vmflow": _repeated(partial(flow.matmul, *made), sizes.steps)}
        if torch is not None:
            contenders["torch"] = figures_torch.product(torch, sizes.matrix, dtype, sizes.steps)
        _timed(findings, sizes, Case(f"product of {sizes.matrix} x {sizes.matrix}, {dtype}", contenders, sizes.steps))


def training_steps(findings: Findings, sizes: Sizes, torch: Any) -> None:
    """Training steps, eagerly and as graphs."""
    for name, network in networks(findings.task.small).items():
        contenders: dict[str, Callable[[], Any]] = {}
        batch = [flow.tensor(value, device="cuda") for value in network.batch(0)]
        for contender, as_graph in (("vmflow", False), ("vmflow, graph", True)):
            step = step_of(network, "cuda", as_graph)
            contenders[contender] = _repeated(partial(step, *batch), sizes.steps)
        if torch is not None:
            contenders |= figures_torch.training_steps(torch, network, sizes.steps)
        _timed(findings, sizes, Case(f"training step, {name}", contenders, sizes.steps))


def launch(findings: Findings, sizes: Sizes, torch: Any) -> None:
    """The time that the host needs to launch a kernel, by the driver alone."""
    kernel = CudaKernel("nothing", 'extern "C" __global__ void nothing(float* out, int64 count) {}')
    taken: list[float] = []

    def work(inputs: list[Any], outputs: list[Any]) -> None:
        launcher = current()
        kernel.launch(launcher, 1, (outputs[0], 1), threads=32)
        began = time.perf_counter()
        for _ in range(sizes.repeat):
            kernel.launch(launcher, 1, (outputs[0], 1), threads=32)
        taken.append((time.perf_counter() - began) / sizes.repeat * 1e6)

    x = flow.zeros(1, device="cuda")
    for _ in range(sizes.rounds):
        issue_update(Update("launches", work, [], [x], sizes.repeat * 5000))
        flow.synchronize()
    findings.figure("launch of a kernel on the host", "us", {"vmflow": statistics.median(taken)})


def resumed(findings: Findings, sizes: Sizes, torch: Any) -> None:
    """How long a coroutine waits for a kernel beyond the time of the kernel itself; also of one that polls."""
    steps = EMULATED_STEPS if findings.task.emulated else GPU_STEPS // 10
    beyond: dict[str, list[float]] = {"vmflow": [], "vmflow, polling": []}

    async def program() -> None:
        x = flow.zeros(256, device="cuda")
        for _ in range(sizes.rounds * 5):
            for name, times in beyond.items():
                start, end = flow.cuda.Event(enable_timing=True), flow.cuda.Event(enable_timing=True)
                await flow.synchronize()
                began = time.perf_counter()
                start.record()
                late_add(x, 1, steps)
                end.record()
                if name != "vmflow":
                    await _polled(end)
                await end
                taken = (time.perf_counter() - began) * 1e6
                times.append(taken - start.elapsed_time(end) * 1e3)

    asyncio.run(program())
    found = {name: statistics.median(times) for name, times in beyond.items()}
    findings.figure("coroutine resumed after a kernel, beyond its time", "us", found, "p50, with issuing and launching")


async def _polled(event: flow.cuda.Event) -> None:
    """Ask again and again; an emulated device may be too late for that."""
    for _ in range(_MOST_POLLS):
        if event.query():
            return
        await asyncio.sleep(0)


def synchronizations(findings: Findings, sizes: Sizes, torch: Any) -> None:
    """How often the host waits in a training step whose loss is not read."""
    for name, network in networks(findings.task.small).items():
        batch = [flow.tensor(value, device="cuda") for value in network.batch(0)]
        for as_graph in (False, True):
            step = step_of(network, "cuda", as_graph)
            for _ in range(3):
                step(*batch)
            flow.synchronize()
            with replays() as counted:
                for _ in range(sizes.steps):
                    step(*batch)
                waited = counted.synchronizations
                flow.synchronize()
            way = "graph" if as_graph else "eager"
            row = f"host waits in a training step, {name}, {way}"
            launches = (counted.calls["launch"] + counted.graphs) / sizes.steps
            remark = f"{launches:.1f} launches, {counted.graphs / sizes.steps:.1f} of graphs"
            findings.figure(row, "", {"vmflow": waited / sizes.steps}, remark)


def compiling(findings: Findings, sizes: Sizes, torch: Any) -> None:
    """The time of NVRTC for a kernel, without any that is kept."""
    kernels = loaded_kernels()[:_COMPILED]
    target = device_of(0).driver.target
    taken: list[float] = []
    for kernel in kernels:
        began = time.perf_counter()
        options = compile_options(target.architecture)
        nvrtc.library().compile(full_source(kernel), kernel.name, options, to=target.kind, keep=False)
        taken.append((time.perf_counter() - began) * 1e3)
    remark = f"of {len(taken)} kernels, to {target.kind} for {target.architecture}; the longest {max(taken):.0f} ms"
    findings.figure("compiling a kernel", "ms", {"vmflow": statistics.median(taken)}, remark)


FIGURES: Final = (tiny_op, chain, products, training_steps, launch, resumed, synchronizations, compiling)


def _timed(findings: Findings, sizes: Sizes, case: Case) -> None:
    found = measure(case, sizes.rounds, findings.seconds_left() / 3)
    findings.figure(case.name, "us", found.microseconds)


def _repeated(work: Callable[[], object], count: int) -> Callable[[], None]:
    """So many times, and then a wait for the device."""

    def run() -> None:
        for _ in range(count):
            work()
        flow.cuda.synchronize()

    return run
