"""Workers that are processes: their messages, how they die, and how a program with them ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow.utils.data import DataLoader

from .support import Dying, Failing, Infos, Noise, Scalars, Shares, Squares, Stuck, Unpicklable, mark, same

pytestmark = [pytest.mark.host, pytest.mark.usefixtures("nothing_is_left")]

ROOT = Path(__file__).resolve().parents[2]


def loader(dataset: Any, batch_size: int = 2, num_workers: int = 1, **more: Any) -> DataLoader:
    """With processes."""
    return DataLoader(dataset, batch_size, num_workers=num_workers, worker_kind="process", **more)


def test_batches_plainly_and_awaiting() -> None:
    batches = loader(Squares(9, size=5000), num_workers=2, persistent_workers=True, worker_init_fn=mark)
    for _ in range(2):
        found = list(batches)
        assert [tensor.tolist() for _, tensor in found] == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
        np.testing.assert_array_equal(found[1][0].numpy(), np.repeat([[4.0], [9.0]], 5000, 1))
        found[1][0].add_(1)
        assert found[1][0][0, 0].item() == 5

    async def collect() -> list[Any]:
        return [tensor.tolist() async for _, tensor in batches]

    assert asyncio.run(collect()) == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


def test_as_threads_do() -> None:
    """The same order, random numbers and seeds; iterable datasets shared in the same way."""
    found = []
    for kind in ("thread", "process"):
        more: dict[str, Any] = {"num_workers": 1, "worker_kind": kind, "generator": flow.Generator().manual_seed(4)}
        noise = DataLoader(Noise(6), 2, shuffle=True, **more)
        infos = DataLoader(Infos(2), 2, collate_fn=same, **more)
        found.append(([(i.tolist(), n.tolist()) for i, n in noise], [value[:3] for value in next(iter(infos))]))
    assert found[0] == found[1]
    assert [tensor.tolist() for tensor in loader(Shares(5), num_workers=1)] == [[0, 1], [2, 3], [4]]


def test_tensors_keep_their_shapes() -> None:
    for index, (scalar, matrix) in enumerate(DataLoader(Scalars(2), None, num_workers=1, worker_kind="process")):
        assert (scalar.shape, scalar.tolist()) == ((), index)
        assert matrix.tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [(KeyError("planted"), KeyError, "planted"), (Unpicklable, RuntimeError, "Unpicklable, which cannot be")],
)
def test_an_error_comes_with_its_traceback(error: Any, kind: type[BaseException], message: str) -> None:
    batches = iter(loader(Failing(3, error), 2))
    assert next(batches)[1].tolist() == [0, 1]
    with pytest.raises(kind, match=message) as caught:
        next(batches)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "while fetching sample 3 of batch 1 in data worker 0, a process" in told
    assert "support.py" in told


def test_a_killed_process_is_an_error() -> None:
    batches = loader(Dying(), 1, persistent_workers=True)
    found: list[int] = []
    with pytest.raises(RuntimeError, match=r"data worker 0 \(process \d+\) was killed by SIGKILL"):
        found.extend(int(index.item()) for _, index in batches)
    assert found == [0, 1, 2, 3, 4]
    assert next(iter(batches))[1].tolist() == [0]  # by another process


def test_an_unpicklable_function_is_refused() -> None:
    with pytest.raises((AttributeError, TypeError), match="pickle") as caught:
        list(loader(Squares(), collate_fn=lambda samples: samples))
    assert 'worker_kind="thread"' in caught.value.__notes__[-1]


@pytest.mark.parametrize("how", ["close", "aclose"])
def test_closing_ends_a_process_that_is_stuck(tmp_path: Path, how: str) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    batches = loader(Stuck(str(fifo)), 1)

    async def awaiting() -> int:
        async with contextlib.aclosing(aiter(batches)) as iterator:  # type: ignore[type-var]
            await anext(iterator)
            return int(await asyncio.to_thread(fifo.read_text))

    if how == "aclose":
        pid = asyncio.run(awaiting())
    else:
        with contextlib.closing(iter(batches)) as iterator:
            next(iterator)
            pid = int(fifo.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_forked_processes() -> None:
    batches = loader(Squares(4), multiprocessing_context="fork")
    assert [tensor.tolist() for _, tensor in batches] == [[0, 1], [2, 3]]


# How programs end

PRELUDE = """\
import asyncio, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
import vmflow as flow
from vmflow.utils.data import DataLoader
from tests.data.support import Gated, Squares, Stuck
"""


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PRELUDE + textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_program_ends_with_iterations_open(kind: str) -> None:
    process = start(
        f"""
        loader = DataLoader(Squares(1000), 1, num_workers=2, worker_kind="{kind}", persistent_workers=True)
        one = iter(loader)
        next(one)
        async def main():
            async for batch in loader:
                print("end")
                return
        asyncio.run(main())
        """
    )
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "end\n", "")


def test_an_interrupt_while_waiting() -> None:
    process = start(
        """
        class Held(Gated):
            def __getitem__(self, index):
                print("ready")
                return super().__getitem__(index)
        held = Held()
        try:
            next(iter(DataLoader(held, num_workers=1)))
        except KeyboardInterrupt:
            print("interrupted")
        held.gate.set()
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert "interrupted" in output
