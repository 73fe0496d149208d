"""The time of ops on large arrays, where the kernel takes nearly all of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import vmflow as flow
from tests.benchmarks.contenders import Company
from tests.benchmarks.measure import EAGER, GRAPH, Bar, Case
from tests.benchmarks.models import GraphOf, elementwise_chain, finish, repeated

# The approximate seconds of one turn of a contender.
TURN: Final = 0.02

# By op, the largest ratio to torch's time that is good enough, and roughly the elements (or products) per nanosecond.
OPS: Final[dict[str, tuple[float, float]]] = {"add": (1.0, 1.0), "mul": (1.0, 1.0), "exp": (0.6, 0.5)}
MATMUL: Final = (0.95, 30.0)


def large(company: Company) -> Iterator[Case]:
    """Generate the cases of single ops on matrices."""
    for side in (16, 32) if company.quick else (512, 2048):
        for name, (most, speed) in OPS.items():
            yield op(company, name, side, side * side / speed, most)
        most, speed = MATMUL
        yield op(company, "matmul", side, side**3 / speed, most)


def op(company: Company, name: str, side: int, nanoseconds: float, most: float) -> Case:
    """Make the case of one op on square matrices, by all libraries, repeated to fill a turn.

    Args:
        company: the libraries.
        name: of the op.
        side: the number of rows and columns.
        nanoseconds: the estimated time of the op.
        most: the largest ratio to torch's time that is good enough.
    """
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((side, side)).astype(np.float32) for _ in range(1 if name == "exp" else 2)]
    count = 1 if company.quick else max(1, int(TURN / (nanoseconds * 1e-9)))
    ours = [flow.tensor(array) for array in arrays]
    function = getattr(flow, name)
    contenders: dict[str, Callable[[], Any]] = {EAGER: repeated(lambda: function(*ours), count, finish)}
    if company.numpy:
        plain = getattr(np, {"mul": "multiply"}.get(name, name))
        contenders["numpy"] = repeated(lambda: plain(*arrays), count)
    if company.torch is not None:
        theirs = [company.torch.from_numpy(array.copy()) for array in arrays]
        contenders["torch"] = repeated(lambda: getattr(company.torch, name)(*theirs), count)
    if company.jax is not None:
        contenders["jax"] = _by_jax(company.jax, {"mul": "multiply"}.get(name, name), arrays, count)
    return Case(f"{name} {side} x {side}", contenders, count, bars=(Bar(most),))


def _by_jax(jax: Any, name: str, arrays: list[Any], count: int) -> Callable[[], None]:
    operands = [jax.numpy.asarray(array) for array in arrays]
    function = getattr(jax.numpy, name)
    return repeated(lambda: jax.block_until_ready(function(*operands)), count)


def chain(company: Company) -> Iterator[Case]:
    """Generate the case of eight elementwise ops in a row on four million floats, eagerly and as a graph."""
    size = 1 << 8 if company.quick else 1 << 22
    random = np.random.default_rng(0)
    a, b = [random.standard_normal(size).astype(np.float32) for _ in range(2)]
    x, y = flow.tensor(a), flow.tensor(b)
    graph = GraphOf(elementwise_chain)
    contenders: dict[str, Callable[[], Any]] = {
        EAGER: repeated(lambda: elementwise_chain(x, y), 1, finish),
        GRAPH: repeated(lambda: graph(x, y), 1, finish),
    }
    if company.numpy:
        contenders["numpy"] = lambda: elementwise_chain(a, b)
    if company.torch is not None:
        theirs = [company.torch.from_numpy(value.copy()) for value in (a, b)]
        contenders["torch"] = lambda: elementwise_chain(*theirs)
    if company.jax is not None:
        jax = company.jax
        compiled, operands = jax.jit(elementwise_chain), [jax.numpy.asarray(value) for value in (a, b)]
        contenders["jax"] = lambda: jax.block_until_ready(compiled(*operands))
    bars = (Bar(0.4), Bar(0.15, GRAPH))
    yield Case(f"8 elementwise ops, {size:,} floats", contenders, bars=bars)
