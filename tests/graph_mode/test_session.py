"""Sessions: the graphs that they own, and the effects of closing them."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode import (
    Session,
    SessionClosed,
    clear_default_session,
    default_session,
    session as sessions,
    session_of,
)


@pytest.fixture(autouse=True)
def _session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test must not close the graphs of other tests."""
    with monkeypatch.context() as patch:
        patch.setattr(sessions, "_default", None)
        yield


class Double(nn.Graph):
    def build(self, x: flow.Tensor) -> flow.Tensor:
        return x * 2


def test_the_default_session_opens_by_itself_and_runs_with_the_first_graph() -> None:
    session = default_session()
    assert default_session() is session
    assert flow.default_session() is session
    assert flow.graph.session.default_session() is session
    states: list[str] = [session.state]
    graph = Double()
    states.append(session.state)
    graph(flow.ones(3))
    states.append(session.state)
    assert states == ["open", "open", "running"]
    assert len(session.graphs()) == 1
    assert repr(session) == f"<Session {session.id} running, 1 graphs>"


def test_it_owns_graphs_weakly() -> None:
    kept, dropped = Double(), Double()
    kept(flow.ones(3))
    dropped(flow.ones(3)).numpy()
    assert len(default_session().graphs()) == 2
    del dropped
    gc.collect()
    assert len(default_session().graphs()) == 1


def test_after_closing_calls_raise() -> None:
    graph, late = Double(), Double()

    @flow.global_function
    def function(x: flow.Tensor) -> flow.Tensor:
        return x + 1

    function(flow.ones(3))
    unread = graph(flow.ones(3))
    session = default_session()
    session.close()
    session.close()
    assert session.state == "closed"
    assert session.graphs() == []
    for call in (graph, graph.run_by_vm, function, late):
        with pytest.raises(
            SessionClosed, match=r"graph '(Double|function)_\d+' belongs to a session that has been closed"
        ):
            call(flow.ones(3))
    assert not late.is_compiled
    # An earlier launch has its result.
    np.testing.assert_array_equal(unread.numpy(), [2, 2, 2])


def test_a_call_that_is_refused_does_not_advance_schedules() -> None:
    weight = flow.ones(2, requires_grad=True)
    optimizer = flow.optim.SGD([weight], lr=1.0)
    schedule = flow.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    @flow.global_function("train", optimizer=optimizer, lr_scheduler=schedule)
    def step() -> flow.Tensor:
        return weight.sum()

    step()
    default_session().close()
    with pytest.raises(SessionClosed):
        step()
    assert schedule.get_last_lr() == [0.5]
    np.testing.assert_array_equal(weight.detach().numpy(), [0, 0])


def test_a_graph_that_is_built_while_its_session_closes_is_closed() -> None:
    graph = Double()

    class Closes(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            default_session().close()
            return x * 2

    with pytest.raises(SessionClosed):
        Closes()(flow.ones(3))
    with pytest.raises(SessionClosed):
        graph(flow.ones(3))


def test_clearing_opens_another() -> None:
    layer = nn.Linear(3, 2)
    old = nn.Graph.trace(layer)
    wanted = old(flow.ones(4, 3)).detach().numpy()
    first = default_session()
    clear_default_session()
    flow.clear_default_session()
    assert first.state == "closed"
    assert default_session() is not first
    new = nn.Graph.trace(layer)
    np.testing.assert_array_equal(new(flow.ones(4, 3)).detach().numpy(), wanted)
    with pytest.raises(SessionClosed):
        old(flow.ones(4, 3))
    old.graph.close()
    np.testing.assert_array_equal(old(flow.ones(4, 3)).detach().numpy(), wanted)


def test_the_newest_graph_is_closed_first() -> None:
    closed: list[str] = []

    class Owned:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)

        def forget_threads(self) -> None:
            closed.append(f"{self.name} forgets")

    session = Session()
    graphs = [Owned(name) for name in "abc"]
    for graph in graphs:
        session.own(graph, graph.name)
    session.forget_threads()
    session.close()
    assert closed == ["a forgets", "b forgets", "c forgets", "c", "b", "a"]
    late = Owned("late")
    with pytest.raises(SessionClosed, match="graph 'late'"):
        session.own(late, late.name)
    assert closed[-1] == "late"


# Sessions of blocks


def test_a_block_has_a_session_of_its_own_and_closes_it() -> None:
    outside = Double()
    outside(flow.ones(3))
    with Session() as session:
        assert default_session() is session
        inside = Double()
        inside(flow.ones(3))
        with Session() as inner:
            assert default_session() is inner
        assert default_session() is session
        assert len(session.graphs()) == 1
    assert default_session() not in (session, inner)
    assert [session.state, inner.state] == ["closed", "closed"]
    with pytest.raises(SessionClosed):
        inside(flow.ones(3))
    np.testing.assert_array_equal(outside(flow.ones(3)).numpy(), [2, 2, 2])
    with pytest.raises(SessionClosed):
        session.__enter__()


async def test_tasks_have_blocks_of_their_own() -> None:
    both = asyncio.Barrier(2)

    async def build(number: float) -> tuple[int, float]:
        with Session() as session:
            graph = Double()
            await both.wait()
            result = await graph(flow.tensor([number]))
            assert default_session() is session
            assert len(session.graphs()) == 1
            await both.wait()
        return session.id, result.numpy()[0]

    (one, first), (other, second) = await asyncio.gather(build(1.0), build(2.0))
    assert one != other
    assert [first, second] == [2, 4]


def test_ids_name_sessions_as_long_as_somebody_has_them() -> None:
    session, other = Session(), Session()
    assert session.id < other.id
    assert session_of(session.id) is session
    assert flow.graph.session_of(other.id) is other
    number = session.id
    del session
    gc.collect()
    with pytest.raises(ValueError, match=f"there is no session {number}"):
        session_of(number)


def test_a_session_is_initialized_once() -> None:
    session = Session()
    assert session.try_init()
    assert session.state == "running"
    assert not session.try_init()
    session.close()
    with pytest.raises(SessionClosed, match=f"session {session.id} has been closed"):
        session.try_init()


def test_changes_are_undone_if_a_later_one_fails() -> None:
    steps: list[str] = []

    @contextmanager
    def change(name: str, fails: bool) -> Iterator[None]:
        if fails:
            raise ValueError(name)
        steps.append(f"{name} begins")
        try:
            yield
        finally:
            steps.append(f"{name} ends")

    with pytest.raises(ValueError, match="rates"), sessions.PutBack(change("gradients", False), change("rates", True)):
        steps.append("build")
    assert steps == ["gradients begins", "gradients ends"]


def test_all_sessions_are_closed_at_exit() -> None:
    code = """
import vmflow as flow
from vmflow import nn
class Double(nn.Graph):
    def build(self, x):
        return x * 2
kept = flow.graph.Session()
kept.__enter__()
graph = Double()
graph(flow.ones(3))
class Owned:
    def close(self):
        print("closed", kept.state)
    def forget_threads(self):
        pass
owned = Owned()
kept.own(owned, "owned")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "closed closed\n"
    assert found.stderr == ""
