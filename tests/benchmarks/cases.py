"""What is measured: the same work in vmflow, numpy and torch."""

from __future__ import annotations

import importlib
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import vmflow as flow
from tests.benchmarks.measure import Case
from vmflow.context import MODE
from vmflow.vm.virtual_machine import VirtualMachine, default_machine

TINY = 10
CHAIN = 2000


def torch_if_installed() -> Any:
    """The module, with one thread (tiny ops gain nothing from two), or None."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    return torch


def tiny_op(torch: Any) -> Iterator[Case]:
    """A chain of element-wise adds of ten floats: issue and execution apart and together."""
    y = flow.ones(TINY)
    one = np.ones(TINY, np.float32)
    # This machine does nothing until it is told to, so that the two halves can be timed.
    patient = VirtualMachine("patient", gather=1 << 60)

    def chain(machine: VirtualMachine) -> None:
        mode = MODE.get()
        MODE.set(mode.replace(machine=machine))
        x = y
        for _ in range(CHAIN):
            x = x + y
        MODE.set(mode)

    def total() -> None:
        chain(default_machine())
        default_machine().drain()

    def with_numpy() -> None:
        x = one
        for _ in range(CHAIN):
            x = x + one

    contenders: dict[str, Callable[[], object]] = {"vmflow": total, "numpy": with_numpy}
    if torch is not None:
        ones = torch.ones(TINY)

        def with_torch() -> None:
            x = ones
            for _ in range(CHAIN):
                x = x + ones

        contenders["torch"] = with_torch
    yield Case("tiny op, total", contenders, CHAIN)

    def issue() -> None:
        chain(patient)

    yield Case("tiny op, issue", {"vmflow": issue}, CHAIN, after=patient.drain)
    yield Case("tiny op, execute", {"vmflow": patient.drain}, CHAIN, before=issue)
    patient.close()


def endurance(torch: Any) -> Iterator[Case]:
    """A million instructions through one machine; the end against the start, both relative to numpy at that time."""
    y = flow.ones(TINY)
    one = np.ones(TINY, np.float32)
    x, z = y, one
    blocks, each = 1000, 1000
    taken: list[float] = []
    relative: list[float] = []
    for _ in range(blocks):
        begin = time.perf_counter()
        for _ in range(each):
            x = x + y
        default_machine().drain()
        middle = time.perf_counter()
        for _ in range(each):
            z = z + one
        taken.append(middle - begin)
        relative.append(taken[-1] / (time.perf_counter() - middle))
    first, last = statistics.median(relative[:100]), statistics.median(relative[-100:])
    print(
        f"{blocks * each:,} instructions: {first:.1f} times numpy's add in the first tenth, {last:.1f} in the last; "
        f"ratio {last / first:.2f} (medians of blocks of {each:,}; {statistics.median(taken) / each * 1e6:.2f} us each)"
    )
    yield from ()


def item(torch: Any) -> Iterator[Case]:
    """One tiny op and reading its result."""
    y = flow.ones(1)
    one = np.ones(1, np.float32)

    def with_vmflow() -> None:
        for _ in range(CHAIN):
            (y + y).item()

    def with_numpy() -> None:
        for _ in range(CHAIN):
            (one + one).item()

    contenders: dict[str, Callable[[], object]] = {"vmflow": with_vmflow, "numpy": with_numpy}
    if torch is not None:
        ones = torch.ones(1)

        def with_torch() -> None:
            for _ in range(CHAIN):
                (ones + ones).item()

        contenders["torch"] = with_torch
    yield Case("tiny op + item()", contenders, CHAIN)


def forward_backward(torch: Any) -> Iterator[Case]:
    """A chain of multiplications of ten floats, differentiated; per op, both directions."""
    length = 500

    def chain(module: Any, leaf: Any, factor: Any) -> None:
        x = leaf
        for _ in range(length):
            x = x * factor
        x.sum().backward()

    leaf, factor = flow.ones(TINY, requires_grad=True), flow.ones(TINY)

    def with_vmflow() -> None:
        leaf.grad = None
        chain(flow, leaf, factor)
        assert leaf.grad is not None
        leaf.grad.numpy()

    one = np.ones(TINY, np.float32)

    def with_numpy() -> None:
        saved = []
        x = one
        for _ in range(length):
            saved.append(x)
            x = x * one
        gradient = np.ones_like(x)
        for _ in saved:
            gradient = gradient * one

    contenders: dict[str, Callable[[], object]] = {"vmflow": with_vmflow, "numpy": with_numpy}
    if torch is not None:
        torch_leaf, torch_factor = torch.ones(TINY, requires_grad=True), torch.ones(TINY)

        def with_torch() -> None:
            torch_leaf.grad = None
            chain(torch, torch_leaf, torch_factor)

        contenders["torch"] = with_torch
    yield Case("tiny op, forward + backward", contenders, length)


def large_ops(torch: Any) -> Iterator[Case]:
    """Where the kernel is everything: an add and a product of 512 x 512."""
    size = 512
    for name, repeat in (("add", 20), ("matmul", 5)):
        a, b = flow.ones(size, size), flow.ones(size, size)
        x, y = np.ones((size, size), np.float32), np.ones((size, size), np.float32)
        contenders: dict[str, Callable[[], object]] = {
            "vmflow": _repeated(flow.add if name == "add" else flow.matmul, a, b, repeat, default_machine().drain),
            "numpy": _repeated(np.add if name == "add" else np.matmul, x, y, repeat),
        }
        if torch is not None:
            contenders["torch"] = _repeated(
                torch.add if name == "add" else torch.matmul, torch.ones(size, size), torch.ones(size, size), repeat
            )
        yield Case(f"{name} {size} x {size}", contenders, repeat)


def _repeated(
    function: Callable[[Any, Any], Any],
    first: Any,
    second: Any,
    repeat: int,
    finish: Callable[[], object] | None = None,
) -> Callable[[], object]:
    def run() -> None:
        for _ in range(repeat):
            function(first, second)
        if finish is not None:
            finish()

    return run


def digits_step(torch: Any) -> Iterator[Case]:
    """One training step of the digits example's network: batch 64 of 8 x 8 images, with Adam."""
    steps = 5
    images = np.random.default_rng(0).random((64, 1, 8, 8), np.float32)
    labels = np.random.default_rng(1).integers(0, 10, 64)

    def training(module: Any, x: Any, y: Any) -> Callable[[], object]:
        nn = module.nn
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(128, 10),
        )
        optimizer = module.optim.Adam(model.parameters(), lr=1e-3)
        loss_of = nn.CrossEntropyLoss()

        def run() -> None:
            for _ in range(steps):
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                optimizer.step()
            loss.item()

        return run

    contenders: dict[str, Callable[[], object]] = {"vmflow": training(flow, flow.tensor(images), flow.tensor(labels))}
    if torch is not None:
        contenders["torch"] = training(torch, torch.tensor(images), torch.tensor(labels))
    yield Case("digits training step", contenders, steps)


def imports(torch: Any) -> Iterator[Case]:
    """A new interpreter that imports the package and ends."""
    with tempfile.TemporaryDirectory() as cache:
        # Compiled modules are cached wherever a package is installed; give the checkout a cache too.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONPATH": os.pathsep.join(sys.path)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def importing(name: str) -> Callable[[], object]:
            return lambda: subprocess.run([sys.executable, "-c", f"import {name}"], check=True, env=environment)

        contenders = {name: importing(name) for name in ("vmflow", "numpy", *(["torch"] if torch is not None else []))}
        yield Case("import", contenders)


ALL: tuple[Callable[[Any], Iterator[Case]], ...] = (
    tiny_op,
    item,
    forward_backward,
    large_ops,
    digits_step,
    imports,
    endurance,
)
