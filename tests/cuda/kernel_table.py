"""A page that tells the registers and the shared memory of all CUDA kernels.

    python -m tests.cuda.kernel_table --kept kernels.json

The ops of the coverage table run on an emulated device, in all dtypes.  All kernels that it has loaded are compiled
for GPUs of three generations.  With ``--kept``, a run that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

import vmflow as flow
from vmflow import optim
from vmflow.dtypes import by_name
from vmflow.kernels.cuda import nvrtc
from vmflow.kernels.cuda.sources import CudaKernel, full_source
from vmflow.streams.cuda.arrays import DeviceArray
from vmflow.streams.cuda.emulation.array_module import ARRAY_MODULE
from vmflow.streams.cuda.setting import VARIABLE

from . import table_cases
from .comparing import DTYPES
from .compiling import ARCHITECTURES, Usage, loaded_kernels, usage
from .emulated import emulated

PAGE: Final = Path("docs/internals/cuda_kernels.md")

# The name under which optimizers are among the ops.
_OPTIMIZER: Final = "optim."
_STEPS: Final = 2
_HEAVIEST: Final = 15

# The folders whose files decide which kernels an op launches.
_SOURCES: Final = ("vmflow", "streams", "tests/ops")


class OpFound(NamedTuple):
    """The kernels and functions that the calls of an op have used.

    Attributes:
        kernels: by key, the name of the kernel.
        stand_ins: by the name of an op and a dtype, the functions of CuPy that compute it.
        errors: of calls that failed.
    """

    kernels: dict[str, str]
    stand_ins: dict[str, list[str]]
    errors: list[str]


class Kept:
    """The findings so far, in a file if there is to be one.

    Args:
        path: of the file; None for none.

    Attributes:
        ops: by the name of an op.
        usages: by key of a kernel and architecture.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._state = {"nvrtc": list(nvrtc.library().version), "sources": _digest_of_sources()}
        self.ops: dict[str, OpFound] = {}
        self.usages: dict[str, Usage] = {}
        if path is not None and path.exists():
            self._read(json.loads(path.read_text()))

    def _read(self, content: dict[str, Any]) -> None:
        if content["state"]["nvrtc"] != self._state["nvrtc"]:
            return
        self.usages = {key: Usage(*found) for key, found in content["usages"].items()}
        if content["state"] == self._state:
            self.ops = {op: OpFound(*found) for op, found in content["ops"].items()}

    def write(self) -> None:
        """Put all into the file."""
        if self._path is not None:
            content = {"state": self._state, "ops": self.ops, "usages": self.usages}
            self._path.write_text(json.dumps(content))


def collect(kept: Kept, ops: Sequence[str], dtypes: Sequence[str], threads: int) -> None:
    """Run the ops, and compile the kernels that they have loaded, while the next ops run."""
    with ThreadPoolExecutor(threads) as pool:
        pending: dict[str, Future[Usage]] = {}
        for op in ops:
            if op in kept.ops and kept.usages.keys() >= set(_keys_of(kept.ops[op].kernels)):
                continue
            kept.ops[op], kernels = run_op(op, dtypes)
            for kernel, architecture in product(kernels, ARCHITECTURES):
                key = f"{_key(kernel)} {architecture}"
                if key not in kept.usages and key not in pending:
                    pending[key] = pool.submit(usage, kernel, architecture)
            for key in [key for key, found in pending.items() if found.done()]:
                kept.usages[key] = pending.pop(key).result()
            kept.write()
            print(f"{op}: {len(kernels)} kernels; {len(pending)} compile", file=sys.stderr, flush=True)
        kept.usages.update({key: found.result() for key, found in pending.items()})
        kept.write()


def run_op(op: str, dtypes: Sequence[str]) -> tuple[OpFound, list[CudaKernel]]:
    """Call an op with all its operands; returns the arguments, and the kernels."""
    stand_ins: dict[str, set[str]] = {}
    errors: list[str] = []
    with emulated("lazy") as devices:
        for driver in devices.cuda.drivers:
            driver.call = _watched(driver.call, stand_ins)  # type: ignore[method-assign]
        for name, call in _calls_of(op, dtypes):
            try:
                call()
            except Exception as error:
                errors.append(f"{name}: {type(error).__name__}: {error}")
        flow.synchronize()
        kernels = loaded_kernels()
    used = {name: sorted(functions) for name, functions in stand_ins.items()}
    return OpFound({_key(kernel): kernel.name for kernel in kernels}, used, errors), kernels


def _calls_of(op: str, dtypes: Sequence[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    if op.startswith(_OPTIMIZER):
        for dtype in ("float32", "float64", "bfloat16"):
            if dtype in dtypes:
                yield f"{op} of {dtype}", partial(_optimize, op.removeprefix(_OPTIMIZER), dtype)
        return
    for case in table_cases.cases(ops=[op]):
        if case.dtype in dtypes:
            name = f"{case.op}{case.label} of {case.dtype}"
            yield name, partial(case.results, "cuda")
            if case.graded:
                yield f"{name}, gradient", partial(case.gradients, "cuda")


def _optimizers() -> list[str]:
    found = [name for name, var in vars(optim).items() if isinstance(var, type) and issubclass(var, optim.Optimizer)]
    return sorted([_OPTIMIZER + name for name in found if name != "Optimizer"])


def _optimize(name: str, dtype: str) -> None:
    """Take some steps."""
    parameter = flow.nn.Parameter(flow.ones(3, 4, dtype=by_name(dtype), device="cuda"))
    optimizer = getattr(optim, name)([parameter], lr=0.01)

    def loss() -> flow.Tensor:
        optimizer.zero_grad()
        found = (parameter * parameter).sum()
        found.backward()
        return found

    for _ in range(_STEPS):
        optimizer.step(loss)
    parameter.detach().cpu().numpy()


def _watched(call: Callable[..., None], stand_ins: dict[str, set[str]]) -> Callable[..., None]:
    """`Driver.call`, which notes the functions of CuPy by the op that they compute, and the dtype of its operand."""

    def watched(name: str, function: Callable[..., object], *rest: Any) -> None:
        arguments, results, *_ = rest
        dtypes = [array.dtype.name for array in (*arguments, *results) if isinstance(array, DeviceArray)]

        def counted(module: Any, *arrays: Any) -> None:
            before = Counter(ARRAY_MODULE.calls)
            try:
                function(module, *arrays)
            finally:
                stand_ins.setdefault(f"{name} {dtypes[0]}", set()).update(ARRAY_MODULE.calls - before)

        call(name, counted, *rest)

    return watched


def _key(kernel: CudaKernel) -> str:
    return hashlib.sha256(full_source(kernel).encode() + kernel.name.encode()).hexdigest()[:20]


def _keys_of(kernels: Iterable[str]) -> list[str]:
    """The keys of kernels with those of the architectures."""
    return [f"{key} {architecture}" for key, architecture in product(kernels, ARCHITECTURES)]


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted(Path(folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def family_of(kernel: str) -> str:
    """The name of a kernel without the dtypes and the numbers of dimensions that it was made for."""
    return "_".join([part for part in kernel.split("_") if part and part not in DTYPES and not part.isdecimal()])


class Family(NamedTuple):
    """Kernels of one family.

    Attributes:
        name: see `family_of`.
        kernels: how many.
        most: the largest of each resource over all kernels and architectures.
        heaviest: the kernel, and the architecture, with the most registers.
    """

    name: str
    kernels: int
    most: Usage
    heaviest: str


def families(kernels: dict[str, str], usages: dict[str, Usage]) -> list[Family]:
    """The families of kernels.

    Args:
        kernels: by key, the name.
        usages: by key and architecture.
    """
    found: dict[str, list[str]] = {}
    for key, name in kernels.items():
        found.setdefault(family_of(name), []).append(key)
    return [_family(name, found[name], kernels, usages) for name in sorted(found)]


def _family(name: str, keys: Sequence[str], kernels: dict[str, str], usages: dict[str, Usage]) -> Family:
    each = {
        (kernels[key], architecture): usages[f"{key} {architecture}"] for key in keys for architecture in ARCHITECTURES
    }
    heaviest = max(each, key=lambda which: (each[which].registers, which))
    most = Usage(*np.max(np.array(list(each.values())), axis=0).tolist())
    return Family(name, len(keys), most, f"{heaviest[0]}, sm_{heaviest[1]}")


def page(kept: Kept, ops: Iterable[str], dtypes: Sequence[str]) -> str:
    """The page, in Markdown."""
    found = [kept.ops[op] for op in ops]
    kernels = {key: name for each in found for key, name in each.kernels.items()}
    table = families(kernels, kept.usages)
    spilling = [family.name for family in table if family.most.spilled]
    heaviest = sorted(table, key=lambda family: (-family.most.registers, family.name))[:_HEAVIEST]
    errors = [error for each in found for error in each.errors]
    architectures = ", ".join([f"sm_{architecture}" for architecture in ARCHITECTURES])
    compiler = ".".join(map(str, nvrtc.library().version))
    lines = [
        "# Registers and shared memory of CUDA kernels",
        "",
        "Written by `python -m tests.cuda.kernel_table`; do not edit. The ops of the coverage table and the optimizers "
        f"ran on an emulated device, in {'all dtypes' if set(dtypes) == set(DTYPES) else ', '.join(dtypes)}, with "
        "their gradients. Chains of elementwise ops are among them as far as these calls made some; graphs make more.",
        "",
        f"{len(kernels)} kernels in {len(table)} families, compiled by NVRTC {compiler} for {architectures}. "
        + (f"Registers are spilled by {', '.join(spilling)}." if spilling else "None spills registers."),
        "",
        "## The most registers",
        "",
        *_table_of(heaviest),
        "",
        "## All families",
        "",
        "Registers of a thread, and bytes of a block's static shared memory: the largest of all dtypes and "
        "architectures. Dynamic shared memory is chosen at a launch, and is not counted.",
        "",
        *_table_of(table),
        "",
        "## Ops that functions of CuPy compute",
        "",
        "On the emulated device, numpy's functions stand in. Products of matrices are the driver's own, and are not "
        "counted. In a captured graph, these ops cannot be.",
        "",
        *_lines_of_stand_ins(found),
        "",
    ]
    if errors:
        lines += ["## Calls that failed", "", *[f"- {_one_line(error)}" for error in errors], ""]
    return "\n".join(lines)


def _lines_of_stand_ins(found: Sequence[OpFound]) -> list[str]:
    dtypes: dict[str, set[str]] = {}
    functions: dict[str, set[str]] = {}
    for each in found:
        for op_and_dtype, names in each.stand_ins.items():
            op, dtype = op_and_dtype.rsplit(" ", 1)
            dtypes.setdefault(op, set()).add(dtype)
            functions.setdefault(op, set()).update([name.removeprefix("cupy.") for name in names])
    if not dtypes:
        return ["None."]
    lines = ["| op | of dtypes | functions |", "|---|---|---|"]
    return lines + [
        f"| {op} | {', '.join([name for name in DTYPES if name in dtypes[op]])} | {', '.join(sorted(functions[op]))} |"
        for op in sorted(dtypes)
    ]


def _table_of(table: Sequence[Family]) -> list[str]:
    lines = [
        "| family | kernels | registers | shared bytes | spilled bytes | most registers |",
        "|---|---|---|---|---|---|",
    ]
    return lines + [
        f"| {family.name} | {family.kernels} | {family.most.registers} | {family.most.shared} | {family.most.spilled} "
        f"| {family.heaviest} |"
        for family in table
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE, help="the page")
    parser.add_argument("--kept", type=Path, help="a file of findings, with which the next run goes on")
    parser.add_argument("--ops", nargs="*", default=[], help="all, unless some are named")
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--threads", type=int, default=2, help="that compile")
    options = parser.parse_args()
    os.environ.setdefault(VARIABLE, "emulated")
    began = time.perf_counter()
    ops = options.ops or [*table_cases.op_names(), *_optimizers()]
    kept = Kept(options.kept)
    collect(kept, ops, options.dtypes, options.threads)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page(kept, ops, options.dtypes))
    failed = sum([len(kept.ops[op].errors) for op in ops])
    print(f"{len(ops)} ops, {failed} calls failed, {time.perf_counter() - began:.0f} s: {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
