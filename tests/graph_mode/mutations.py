"""Saved graphs with random changes of their JSON: seeds, changes, and the outcomes of loading and running them.

A child process loads and runs the changed graph, so that a crash ends the child alone and is reported by its number.
"""

from __future__ import annotations

import copy
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, get_args

import attrs
import numpy as np

import vmflow as flow
from vmflow import nn
from vmflow.errors import DeviceUnavailable, LinAlgError
from vmflow.graph_mode import args_tree
from vmflow.graph_mode.job import Kind

# Seconds that one graph may take to be loaded and run.
PATIENCE: Final = 20.0

# Bytes that a child may have: a changed graph that needs more gets a MemoryError, and does not stop the machine.
MEMORY: Final = 6 << 30

# Errors that are documented: of the folder, of memory, and of the values that an op meets when it runs.
ALLOWED: Final = (
    *(ValueError, IndexError, ZeroDivisionError, LinAlgError, DeviceUnavailable, MemoryError, FileNotFoundError),
)

# And this one, which the function documents as a RuntimeError.
_OF_VALUES: Final = "binary_cross_entropy: probabilities must be within [0, 1]"

# The graphs of one child, which is then replaced, with all that it has compiled and remembered.
_BATCH: Final = 500


class Called(nn.Graph):
    """A graph of a function, and of the modules that it uses."""

    def __init__(self, call: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.call = call
        self.modules_used = nn.ModuleList([module.eval() for module in modules])

    def build(self, *args: Any) -> Any:
        return self.call(*args)


def _of(*layers: nn.Module) -> tuple[Callable[..., Any], nn.Module]:
    model = nn.Sequential(*layers)
    return model, model


def _attention(q: flow.Tensor, k: flow.Tensor, v: flow.Tensor) -> Any:
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _gradients(model: nn.Module, loss: Callable[[flow.Tensor], flow.Tensor]) -> Callable[[flow.Tensor], Any]:
    """The gradients by the input and by the parameters."""

    def call(x: flow.Tensor) -> Any:
        x = x.detach().requires_grad_()
        return flow.autograd.grad(loss(model(x)), [x, *model.parameters()])

    return call


def _indexed(x: flow.Tensor, rows: flow.Tensor) -> Any:
    y = x.clone()
    y[rows] = x[rows.flip(0)] * 2
    y[1:4, ::2] = 1.0
    return y, x.gather(0, rows.reshape(-1, 1)), flow.zeros(8, 6).scatter_add(0, rows.reshape(-1, 1), x), x.take(rows)


def _viewed(x: flow.Tensor) -> Any:
    wide = x.reshape(4, 2, 6).permute(2, 0, 1)
    return wide.sum(0), x.t() @ x, x[::2, 1:].expand(2, 4, 5) + 1, x.flip(0).unfold(0, 3, 2).mean(-1), x.diagonal()


def _reduced(x: flow.Tensor) -> Any:
    best, where = x.max(1)
    return x.sum(), x.mean(0), x.std(1), best, where, x.cumsum(0), x.prod(1), x.argmin(), x.norm(), x.logsumexp(1)


def _ordered(x: flow.Tensor) -> Any:
    return x.sort(0), x.topk(3, 1), x.median(), x.quantile(0.3), flow.histc(x, 4), x.cummax(0), x.cumprod(1)


def _random(x: flow.Tensor) -> Any:
    noise = flow.randn(8, 6) + flow.rand(8, 6) * flow.bernoulli(x.sigmoid())
    return nn.functional.dropout(x, 0.4, training=True) + noise, flow.randperm(7), flow.multinomial(x.softmax(1), 2)


def _factored(x: flow.Tensor) -> Any:
    square = x.t() @ x + flow.eye(6)
    chol = flow.linalg.cholesky(square)
    return flow.linalg.solve(square, x.t()), square.inverse(), flow.linalg.qr(x), flow.linalg.eigh(square), chol


def _made(x: flow.Tensor) -> Any:
    fused = ((x * 2.5 + 1).exp() - x).sin().clamp(-1, 1)
    y = flow.cat([x, fused], 1).roll(2, 0).tril()
    spectrum = flow.fft.rfft(x)
    return flow.where(y > 0, y, flow.arange(12) * 0.5), spectrum.abs(), flow.fft.irfft(spectrum), x.to(flow.int32) // 2


def _losses(x: flow.Tensor, classes: flow.Tensor) -> Any:
    leaf = x.detach().requires_grad_()
    loss = nn.functional.cross_entropy(leaf, classes) + nn.functional.nll_loss(leaf.log_softmax(1), classes)
    return flow.autograd.grad(loss, leaf), nn.functional.binary_cross_entropy_with_logits(x, x.sigmoid())


def graphs() -> Iterator[tuple[str, nn.Graph, tuple[flow.Tensor, ...]]]:
    """Graphs of all kinds of ops, each with arguments."""
    x, rows = flow.randn(8, 6), flow.tensor([1, 0, 5, 3, 2, 4, 0, 5])
    image, words = flow.randn(2, 3, 8, 8), flow.tensor([[1, 2, 3], [4, 0, 1]])
    q = flow.randn(2, 2, 5, 8)
    mlp = _of(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(-1))
    yield "mlp", Called(*mlp), (x,)
    layers = (
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 3),
    )
    yield "conv", Called(*_of(*layers)), (image,)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.LayerNorm(4))
    yield "conv gradients", Called(_gradients(model, lambda y: y.square().sum()), model), (image,)
    pools = nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2), nn.BatchNorm2d(4, track_running_stats=False))
    yield "pool gradients", Called(_gradients(pools, lambda y: y.square().sum()), pools), (image,)
    yield "attention", Called(_attention), (q, q, q)
    head = nn.MultiheadAttention(8, 2, batch_first=True)
    yield "heads", Called(lambda y: head(y, y, y)[0], head), (flow.randn(2, 5, 8),)
    yield "embedding", Called(*_of(nn.Embedding(6, 8), nn.LayerNorm(8), nn.Linear(8, 2))), (words,)
    lstm, gru = nn.LSTM(6, 5), nn.GRU(6, 5)
    yield "recurrent", Called(lambda y: (lstm(y)[0], gru(y)[0]), lstm, gru), (flow.randn(4, 2, 6),)
    yield "mlp gradients", Called(_gradients(mlp[1], lambda y: y.log().sum()), mlp[1]), (x,)
    yield "losses", Called(_losses), (x, rows)
    yield "indexing", Called(_indexed), (x, flow.tensor([1, 0, 5, 3]))
    for call in (_viewed, _reduced, _ordered, _random, _factored, _made):
        yield call.__name__.strip("_"), Called(call), (x,)


@attrs.frozen
class Seed:
    """A saved graph as it was.

    Attributes:
        name: for messages.
        files: JSON by name of the file.
        tensors: the file of its tensors.
        args: as arrays.
    """

    name: str
    files: dict[str, Any]
    tensors: Path
    args: tuple[np.ndarray[Any, Any], ...]


def saved(folder: Path, name: str, graph: nn.Graph, args: tuple[flow.Tensor, ...]) -> Seed:
    """The graph, saved in a folder."""
    graph(*args)
    flow.save(graph, folder)
    files = {value.name: json.loads(value.read_text()) for value in folder.glob("*.json")}
    return Seed(name, files, folder / "tensors.safetensors", tuple([arg.numpy().copy() for arg in args]))


# Changes

_NUMBERS: Final = (
    *(-1, 0, 1, 2, 3, 5, 7, 8, 16, 63, 64, 1000, 4096, -2, -7, 1 << 20, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 40),
    *((1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64, 1 << 80, 0.0, 0.5, -1.5, 1e300, 1e-300),
)
_ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, "", "x", "cpu", "float32", "sum", [], {}, [[]], {"tuple": []}, {"tuple": [1, 2]}),
    *({"float": "nan"}, {"float": "inf"}, {"complex": [1.0, 2.0]}, {"dtype": "int64"}, {"device": "cpu"}),
    *({"meta": ["float32", [2, 3], "cpu"]}, {"slice": [None, None, None]}, {"size": [2]}, {"bytes": "00"}, {"set": []}),
)
_DTYPES: Final = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"),
    "complex128",
)


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Each container with a key in it."""
    found = []
    waiting = [content]
    while waiting:
        at = waiting.pop()
        for key, value in at.items() if isinstance(at, dict) else enumerate(at):
            found.append((at, key))
            if isinstance(value, (dict, list)):
                waiting.append(value)
    return found


def _operands(draw: random.Random, job: Any) -> list[Any]:
    """A list of operands of an op."""
    op = draw.choice(job["ops"])
    found: list[Any] = op[draw.choice(("inputs", "inputs", "outputs"))]
    return found


def _double(draw: random.Random, job: Any) -> None:
    given = _operands(draw, job)
    if draw.random() < 0.5:
        given += copy.deepcopy(given)
    elif given:
        given.insert(draw.randrange(len(given) + 1), copy.deepcopy(draw.choice(given)))


def _drop(draw: random.Random, job: Any) -> None:
    given = _operands(draw, job)
    if given:
        given.pop(draw.randrange(len(given)))


def _swap(draw: random.Random, job: Any) -> None:
    given = _operands(draw, job)
    draw.shuffle(given)


def _exchange(draw: random.Random, job: Any) -> None:
    """An operand of one op in place of another's."""
    one, other = _operands(draw, job), _operands(draw, job)
    if one and other:
        one[draw.randrange(len(one))] = copy.deepcopy(draw.choice(other))


def _all_metas(job: Any) -> list[Any]:
    found = [value["meta"] for value in job["buffers"].values()]
    for op in job["ops"]:
        found += [entry["meta"] for entry in (*op["inputs"], *op["outputs"])]
    return found


def _recast(draw: random.Random, job: Any) -> None:
    """Another dtype for a buffer and for all that is seen of it, or at one place only."""
    to = draw.choice(_DTYPES)
    number = draw.choice(list(job["buffers"]))
    if draw.random() < 0.3:
        draw.choice(_all_metas(job))[0] = to
        return
    job["buffers"][number]["meta"][0] = to
    for op in job["ops"]:
        for operand in (*op["inputs"], *op["outputs"]):
            if operand["buffer"] == int(number):
                operand["meta"][0] = to


def _reshape(draw: random.Random, job: Any) -> None:
    """Another shape, consistently where it is seen alike, of a buffer."""
    number = draw.choice(list(job["buffers"]))
    before = list(job["buffers"][number]["meta"][1])
    after = list(before)
    kind = draw.randrange(4)
    if kind == 0 and after:
        after[draw.randrange(len(after))] = draw.choice((0, 1, 2, 3, 4, 8, 9, 17))
    elif kind == 1:
        after.insert(draw.randrange(len(after) + 1), draw.choice((0, 1, 2)))
    elif kind == 2 and after:
        after.pop(draw.randrange(len(after)))
    else:
        draw.shuffle(after)
    job["buffers"][number]["meta"][1] = after
    for op in job["ops"]:
        for operand in (*op["inputs"], *op["outputs"]):
            if operand["buffer"] == int(number) and operand["meta"][1] == before:
                operand["meta"][1] = list(after)


def _restride(draw: random.Random, job: Any) -> None:
    given = _operands(draw, job)
    if given:
        operand = draw.choice(given)
        rank = len(operand["meta"][1])
        operand["strides"] = [draw.choice((0, 0, 1, 1, 2, 3, -1, 6, 8)) for _ in range(rank)]
        operand["offset"] = draw.choice((0, 0, 1, 2, -1, 5))


def _rename(draw: random.Random, job: Any) -> None:
    """Another op of the same graph, or of the table."""
    from vmflow.ops.table import OPS

    names = [value["op"] for value in job["ops"]] if draw.random() < 0.4 else list(OPS)
    draw.choice(job["ops"])["op"] = draw.choice(names)


def _attribute(draw: random.Random, job: Any) -> None:
    """Something else within an op's attributes or scalars, or one more or less of them."""
    op = draw.choice(job["ops"])
    name = draw.choice(("attributes", "attributes", "attributes", "scalars"))
    content = op.setdefault(name, [])
    inside = _places(content)
    if not inside or draw.random() < 0.1:
        if isinstance(content, list):
            content.append(copy.deepcopy(draw.choice((*_ODD, *_NUMBERS))))
        return
    at, key = draw.choice(inside)
    if draw.random() < 0.1:
        del at[key]
    elif type(at[key]) is int and draw.random() < 0.6:
        at[key] = draw.choice((at[key] + 1, at[key] - 1, -at[key], at[key] * 2, *_NUMBERS))
    else:
        at[key] = copy.deepcopy(draw.choice((*_ODD, *_NUMBERS, *[other[its] for other, its in inside])))


def _order(draw: random.Random, job: Any) -> None:
    ops = job["ops"]
    one, other = draw.randrange(len(ops)), draw.randrange(len(ops))
    kind = draw.randrange(3)
    if kind == 0:
        ops[one], ops[other] = ops[other], ops[one]
    elif kind == 1:
        ops.insert(other, copy.deepcopy(ops[one]))
    else:
        del ops[one]


def _kind(draw: random.Random, job: Any) -> None:
    op = draw.choice(job["ops"])
    op["kind"] = draw.choice(get_args(Kind))
    if draw.random() < 0.3:
        op["phase"] = draw.choice(("micro", "step"))
        job["micro_batches"] = draw.choice((1, 2, 3))


def _anything(draw: random.Random, job: Any) -> None:
    inside = _places(job)
    at, key = draw.choice(inside)
    kind = draw.random()
    if kind < 0.15:
        del at[key]
    elif kind < 0.5:
        other, its = draw.choice(inside)
        at[key] = copy.deepcopy(other[its])
    else:
        at[key] = copy.deepcopy(draw.choice((*_NUMBERS, *_ODD)))


CHANGES: Final = (
    *(_double, _drop, _swap, _exchange, _exchange, _recast, _recast, _reshape, _reshape, _restride, _rename),
    *(_attribute, _attribute, _attribute, _order, _kind, _anything),
)


def changed(seed: Seed, draw: random.Random) -> tuple[str, dict[str, Any]]:
    """Which changes, and the files after them."""
    files = copy.deepcopy(seed.files)
    names = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if draw.random() < 0.04:
            _anything(draw, files["manifest.json"])
            names.append("_manifest")
            continue
        change = draw.choice(CHANGES)
        names.append(change.__name__)
        try:
            change(draw, files["job_0.json"])
        except (KeyError, TypeError, IndexError, AttributeError, ValueError):
            continue  # an earlier change has left nothing of the kind that this one looks for
    return "+".join(names), files


# Running


def outcome(seed: Seed, files: dict[str, Any], folder: Path) -> str:
    """Load it and run it; returns the outcome in a word."""
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    try:
        loaded = flow.load_graph(folder)
    except (ValueError, DeviceUnavailable, MemoryError, FileNotFoundError) as error:
        return f"load {type(error).__name__}"
    try:
        result = loaded(*[flow.tensor(arg) for arg in seed.args])
        for each in args_tree.flatten(result)[1]:
            each.numpy()
    except (*ALLOWED, RuntimeError) as error:
        if isinstance(error, ALLOWED) or str(error).startswith(_OF_VALUES):
            return f"run {type(error).__name__}"
        raise
    return "ran"


def _draw(seeds: list[Seed], base: int, number: int) -> tuple[Seed, str, dict[str, Any]]:
    draw = random.Random(f"{base} {number}")
    composed = [value for value in seeds if not value.name.startswith("op ")]
    seed = draw.choice(composed if draw.random() < 0.5 else seeds)
    return seed, *changed(seed, draw)


def _child(seeds: list[Seed], base: int, first: int, last: int, told: mmap.mmap, out: int) -> None:
    """Run these numbers, and note each before it begins; ends the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for number in range(first, last):
            told[:8] = struct.pack("q", number)
            seed, names, files = _draw(seeds, base, number)
            (folder / "tensors.safetensors").unlink(missing_ok=True)
            shutil.copyfile(seed.tensors, folder / "tensors.safetensors")
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            try:
                found = outcome(seed, files, folder)
            except BaseException as error:  # any error is reported
                found = "FAULT " + "".join(traceback.format_exception(error))
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.write(out, json.dumps([number, seed.name, names, found]).encode() + b"\n")
    os._exit(0)


@attrs.define
class Tally:
    """The outcomes of changed graphs.

    Attributes:
        outcomes: the number of each kind.
        faults: number, seed, changes and trouble of the outcomes that are not allowed.
    """

    outcomes: Counter[str] = attrs.field(factory=Counter)
    faults: list[tuple[int, str, str, str]] = attrs.field(factory=list)

    def note(self, number: int, seed: str, names: str, found: str) -> None:
        """Count one."""
        word = found.partition(" ")[0] if found.startswith("FAULT") else found
        self.outcomes[word] += 1
        if word == "FAULT":
            self.faults.append((number, seed, names, found))


def tried(seeds: list[Seed], base: int, first: int, last: int, tally: Tally) -> None:
    """Change, load and run these numbers, in children of this process.

    Args:
        seeds: the saved graphs to change.
        base: the same numbers of the same base are the same changes.
        first, last: the numbers, without the last.
        tally: to which the outcomes are added.
    """
    with mmap.mmap(-1, 8) as told, tempfile.TemporaryFile() as out:
        while first < last:
            behind = min(first + _BATCH, last)
            out.seek(0)
            out.truncate()
            told[:8] = struct.pack("q", first)
            child = os.fork()
            if not child:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                try:
                    _child(seeds, base, first, behind, told, out.fileno())
                finally:
                    os._exit(1)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            for line in out:
                tally.note(*json.loads(line))
            first = behind
            if status:
                (number,) = struct.unpack("q", told[:8])
                seed, names, _ = _draw(seeds, base, number)
                tally.note(number, seed.name, names, f"FAULT the child ended with {status}")
                first = number + 1


def report(tally: Tally, begun: float) -> str:
    """A few lines about it."""
    total = sum(tally.outcomes.values())
    lines = [f"{total} changed graphs in {time.perf_counter() - begun:.1f} s"]
    lines += [f"  {count:7d}  {name}" for name, count in tally.outcomes.most_common()]
    lines += [f"number {number} of {seed!r}, {names}: {found}" for number, seed, names, found in tally.faults]
    return "\n".join(lines)
