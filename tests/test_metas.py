"""Metas of tensors: equal ones are one object as long as it is in use, whatever the table of metas drops."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import vmflow as flow
from vmflow.instructions import blob
from vmflow.instructions.blob import MetaTable, TensorMeta

pytestmark = pytest.mark.host

CPU = flow.device("cpu")


def made(size: int) -> TensorMeta:
    return TensorMeta(flow.Size((size,)), flow.float32, CPU)


def test_metas_in_use_stay_and_others_go() -> None:
    table = MetaTable(4)
    first = table.add(0, made(0))
    assert table.add(0, made(0)) is first
    for size in range(1, 5):
        table.add(size, made(size))
    assert list(table.metas) == [0, 4]
    assert table.add(0, made(0)) is first


def test_a_table_of_metas_in_use_grows() -> None:
    table = MetaTable(4)
    kept = [table.add(size, made(size)) for size in range(100)]
    assert [table.add(size, made(size)) for size in range(100)] == kept


def test_threads_get_one_object() -> None:
    table = MetaTable(8)
    kept = [table.add(size, made(size)) for size in range(4)]
    wrong: list[int] = []

    def ask() -> None:
        for turn in range(3000):
            table.add(100 + turn, made(turn))
            if table.add(turn % 4, made(turn % 4)) is not kept[turn % 4]:
                wrong.append(turn)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_graphs_and_checkpoints_work_while_metas_are_dropped(tmp_path: Path) -> None:
    double = flow.nn.Graph.trace(lambda x: x * 2)
    assert double(flow.tensor([1, 2])).tolist() == [2, 4]
    flow.save(double.graph, tmp_path / "graph")
    loaded = flow.load_graph(tmp_path / "graph")
    w = flow.tensor([1.0, 2.0], requires_grad=True)
    y = flow.utils.checkpoint.checkpoint(lambda w: (w * w).sum(), w, use_reentrant=False)
    blob._METAS._drop_unused()
    assert loaded(flow.tensor([3, 4])).tolist() == [6, 8]
    assert double(flow.tensor([3, 4])).tolist() == [6, 8]
    y.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2, 4]
