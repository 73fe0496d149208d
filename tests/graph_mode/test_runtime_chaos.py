"""Graphs under chaos, and tests of the bugs that this has found."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import vmflow as flow
from tests.graph_mode.chaos import MODES, Round, make_round, run
from tests.support import no_collections, weak_storage
from tests.vm.gates import PATIENCE, entered
from vmflow import dtypes, nn
from vmflow.devices import device as Device
from vmflow.errors import InternalError, VirtualMachineClosed
from vmflow.graph_mode import calling
from vmflow.graph_mode.actors import ActorSystem
from vmflow.graph_mode.job_queue import JobQueue
from vmflow.graph_mode.launch import Launch
from vmflow.graph_mode.plan_memory import PlanMemory
from vmflow.graph_mode.runtime import GraphRuntime
from vmflow.instructions.blob import Blob, Storage, meta
from vmflow.instructions.failure import Failure
from vmflow.instructions.instruction import Dependence, Instruction
from vmflow.instructions.policy import InstructionPolicy
from vmflow.streams import SimulatedDevice
from vmflow.vm import VirtualMachine, stream_table
from vmflow.vm.virtual_machine import current_machine

ROUNDS: Final = 20


class Double(nn.Graph):
    """Counts for little."""

    def build(self, x: flow.Tensor) -> Any:
        return x * 2


class Chain(nn.Graph):
    """Three stages over one module."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(*layers)
        self.config.allow_fusion(False)
        for stage, block in enumerate(self.net):
            block.config.set_stage(stage)

    def build(self, x: flow.Tensor) -> Any:
        return self.net(x)


class Descend(nn.Graph):
    """One step of a parameter, which may be an argument as well."""

    def __init__(self, model: nn.Linear) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.5))

    def build(self, x: flow.Tensor) -> Any:
        loss = self.model(x).sum()
        loss.backward()
        return loss


@pytest.mark.host
@pytest.mark.parametrize("mode", MODES)
def test_random_rounds(mode: str) -> None:
    for seed in range(ROUNDS):
        _run(make_round(seed, mode))


@pytest.mark.host
def test_a_seed_is_a_round() -> None:
    assert make_round(7, "random") == make_round(7, "random")
    assert make_round(7, "random") != make_round(8, "random")


def _run(rounds: Round) -> None:
    try:
        run(rounds)
    except BaseException as error:
        error.add_note(f"python -m tests.graph_mode.chaos --rounds 1 --first-seed {rounds.seed} --mode {rounds.mode}")
        raise


def _runtime(graph: nn.Graph) -> GraphRuntime:
    found: GraphRuntime = current_machine().graphs[graph._forms[0]]
    return found


def test_a_graph_lost_in_a_circle_gives_its_memory_back() -> None:
    graph = Double()
    x = flow.ones(4)
    assert (graph(x).numpy() == 2).all()
    runtime = _runtime(graph)
    assert runtime.memory.tensors
    graph.itself = graph
    del graph
    gc.collect()
    assert not runtime.memory.tensors


def test_a_parameter_of_another_shape_is_refused_before_anything_changes() -> None:
    model = nn.Linear(3, 2)
    graph = Descend(model)
    x = flow.ones(4, 3)
    graph(x)
    kept = model.weight.data
    before = model.bias.detach().numpy().copy()
    model.weight.data = flow.zeros(5, 3)
    with pytest.raises(ValueError, match=r"model.weight was float32\[2, 3\].*is now float32\[5, 3\]"):
        graph(x)
    assert (model.bias.detach().numpy() == before).all()
    model.weight.data = kept.t().contiguous().t()
    with pytest.raises(ValueError, match="has become a view"):
        graph(x)
    model.weight.data = kept
    graph(x).numpy()
    assert (model.bias.detach().numpy() != before).all()


def test_other_data_of_the_same_shape_is_seen_by_later_calls_only() -> None:
    model = nn.Linear(1, 1, bias=False)

    class Predict(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def build(self, x: flow.Tensor) -> Any:
            return self.model(x)

    graph = Predict()
    model.weight.data = flow.ones(1, 1)
    x = flow.ones(1, 1)
    first = graph(x)
    model.weight.data = flow.full((1, 1), 5.0)
    second = graph(x)
    assert (first.numpy().item(), second.numpy().item()) == (1.0, 5.0)


def test_an_argument_that_the_run_changes_has_its_value_of_the_call() -> None:
    model = nn.Linear(3, 3, bias=False)
    graph = Descend(model)
    before = model.weight.detach().numpy().copy()
    loss = graph(model.weight.detach())
    np.testing.assert_allclose(loss.numpy(), (before @ before.T).sum(), rtol=1e-5)
    assert (model.weight.detach().numpy() != before).any()


def test_an_act_that_raises_something_else_fails_its_launch_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Chain(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    x = flow.ones(1, 2)
    want = graph(x).numpy()
    program = PlanMemory.program
    planted = [MemoryError("no room for the steps")]

    def broken(self: PlanMemory, task: int, action: Any) -> Any:
        if planted:
            raise planted.pop()
        return program(self, task, action)

    monkeypatch.setattr(PlanMemory, "program", broken)
    failing, fine = graph(x), graph(x)
    with pytest.raises(MemoryError) as caught:
        failing.numpy()
    assert any(["of graph 'Chain" in note for note in caught.value.__notes__])
    assert (fine.numpy() == want).all()
    assert (graph(x).numpy() == want).all()


@pytest.mark.host
def test_arguments_are_given_back_in_any_order() -> None:
    """An argument handed over later kept the arguments of launches for which it had to wait."""
    with entered(VirtualMachine("sections", cpu_worker="always", window=1, stall_after=PATIENCE)):
        graph = Chain(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
        late, early = flow.ones(300, 2), flow.ones(1, 2)
        results, given = [], []
        for call in range(30):
            results.append(graph((late @ flow.ones(2, 2))[:1]))
            results.append(graph(early))
            given += [2.0, 0.5**call]
            early.mul_(0.5)
        with flow.no_grad():
            expected = [graph.net(flow.full((1, 2), value)).numpy() for value in given]
            for found, wanted in zip(results, expected, strict=True):
                assert found.numpy().tobytes() == wanted.tobytes()


@pytest.mark.host
def test_two_threads_that_call_first_build_once() -> None:
    machine = current_machine()
    graph = Double()
    x = flow.ones(4)
    ready = threading.Barrier(4)
    found: list[Any] = []

    def call() -> None:
        ready.wait(PATIENCE)
        found.append(graph(x).numpy())

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(found) == 4
    assert len([value for value in machine.graphs.values() if value.name == graph.name]) == 1


class _Recorder:
    """In place of a runtime: starts nothing, and has the queue asked again in the middle of starting."""

    at_once = 100

    def __init__(self, queue: JobQueue) -> None:
        self.queue = queue
        self.started: list[Launch] = []
        self.coming: list[Launch] = []

    def start(self, launch: Launch) -> None:
        if self.coming:
            self.queue.enter(self, self.coming.pop())  # type: ignore[arg-type]
        self.started.append(launch)


def test_launches_start_in_order_whoever_asks() -> None:
    """Two threads that asked together each took a launch, and started them in any order."""
    queue = JobQueue()
    runtime = _Recorder(queue)
    launches = [Launch((), (), (), (), 0) for _ in range(3)]
    for launch in launches:
        launch.open(None)
    runtime.coming = [launches[2], launches[1]]
    queue.enter(runtime, launches[0])  # type: ignore[arg-type]
    assert runtime.started == launches


def test_a_machine_is_not_kept_by_its_graphs() -> None:
    graph = Double()
    machine = VirtualMachine("soon gone", cpu_worker="never")
    with entered(machine):
        x = flow.ones(4)
        assert (graph(x).numpy() == 2).all()
    runtime = machine.graphs[graph._forms[0]]
    assert runtime.machine is machine
    held = graph._forms[0]
    assert not any([var is machine or var is runtime for var in vars(held).values()])
    assert all([isinstance(storage, Storage) for storage in held._variables.storages.values()])


@pytest.mark.parametrize("size", [4, 200])
@pytest.mark.parametrize("fails", [False, True])
def test_a_launch_that_is_over_keeps_nothing(size: int, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch and the receiver of its end referred to each other: all results waited for the collector."""
    graph = Chain(nn.Linear(size, size))
    x = flow.ones(size, size)
    graph(x).numpy()
    if fails:

        def broken(self: PlanMemory, task: int, action: Any) -> Any:
            raise MemoryError("no room for the steps")

        monkeypatch.setattr(PlanMemory, "program", broken)
        graph.close()
        graph._compile(x)
    with no_collections():
        x = flow.ones(size, size)
        result = graph(x)
        kept = [weak_storage(value) for value in (x, result)]
        current_machine().drain()
        if fails:
            failure = result._blob.storage.failure
            assert failure is not None
            failure.observed = True
            failure.error.__traceback__ = failure.origin = None
            del failure
        del x, result
        current_machine().drain()
        assert [value() for value in kept] == [None, None]


def _closed_while_running(monkeypatch: pytest.MonkeyPatch, look: Callable[[GraphRuntime, flow.Tensor], None]) -> None:
    """Close a machine whose device has been handed the first stage of a launch, and nothing more."""
    where = Device("sim:5")
    device = SimulatedDevice("sim:5", "lazy", seed=0)
    monkeypatch.setitem(stream_table._simulated, where, device)
    machine = VirtualMachine("ends", cpu_worker="never")
    with entered(machine):
        graph = Chain(*[nn.Linear(2, 2, device=where) for _ in range(3)])
        x = flow.ones(1, 2, device=where)
        graph(x).numpy()
        machine.drain()
        result = graph(x)
        runtime = _runtime(graph)
        while not runtime._running:
            machine.driver.drive()
            assert runtime._running or device.step()
        machine.close()
        assert machine.state == "closed"
        look(runtime, result)


def test_a_runtime_whose_machine_was_closed_keeps_no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those under way stayed, and with them the memory of arguments, results and parameters."""

    def look(runtime: GraphRuntime, result: flow.Tensor) -> None:
        assert not runtime._running
        assert not runtime._open
        assert not runtime.memory.tensors
        with pytest.raises(VirtualMachineClosed):
            result.numpy()

    _closed_while_running(monkeypatch, look)


def test_an_act_that_comes_after_the_end_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device runs all work that it was given, even if the launch has failed."""
    actions: list[Any] = []
    issue = GraphRuntime._issue

    def noted(self: GraphRuntime, action: Any) -> None:
        actions.append(action)
        issue(self, action)

    monkeypatch.setattr(GraphRuntime, "_issue", noted)

    def look(runtime: GraphRuntime, result: flow.Tensor) -> None:
        failure = result._blob.storage.failure
        runtime.act(actions[-1])
        assert result._blob.storage.failure is failure
        assert failure is not None
        assert isinstance(failure.error, VirtualMachineClosed)

    _closed_while_running(monkeypatch, look)


class _Watched(Storage):
    """Records whether its launch was over when it learned of the failure."""

    def __init__(self) -> None:
        super().__init__(Dependence())
        self.launch: Launch | None = None
        self.late: list[bool] = []

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "failure" and value is not None:
            assert self.launch is not None
            self.late.append(self.launch.over)
        super().__setattr__(name, value)


def test_a_launch_is_not_over_before_its_results_say_what_went_wrong() -> None:
    """A thread that found it over took results for good that were about to be failures."""
    storage = _Watched()
    launch = Launch((), (Blob(storage, meta((1,), dtypes.float32, Device("cpu"))),), (), (), 0)
    storage.launch = launch
    launch.fail(Failure(ValueError("went wrong"), dropped=True))
    launch.finish()
    assert launch.over
    assert storage.late == [False]


class Leaking(nn.Graph):
    """Returns a tensor that only stands for a value."""

    def __init__(self) -> None:
        super().__init__()
        self.leaked: list[flow.Tensor] = []

    def build(self, x: flow.Tensor) -> Any:
        self.leaked.append(x + 1)
        return self.leaked[0]


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_call_that_issued_nothing_leaves_nothing(interrupted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch that never was kept its graph from being closed."""
    graph, leaking = Chain(nn.Linear(2, 2), nn.Linear(2, 2)), Leaking()
    x = flow.ones(1, 2)
    leaking(x)
    want = graph(x).numpy()
    runtime = _runtime(graph)

    def interrupt(machine: VirtualMachine, storage: Storage) -> Dependence:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if interrupted:
            patch.setattr(calling, "_ordered", interrupt)
        with pytest.raises(KeyboardInterrupt if interrupted else RuntimeError):
            graph(leaking.leaked[0])
    assert not runtime._open
    assert (graph(x).numpy() == want).all()
    current_machine().drain()
    graph.close()
    assert not runtime.memory.tensors


def test_actors_that_contradict_themselves_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call was told of the same contradiction, and the memory was kept for as long as the graph."""
    graph = Chain(nn.Linear(2, 2), nn.Linear(2, 2))
    x = flow.ones(1, 2)
    want = graph(x).numpy()
    runtime = _runtime(graph)

    def contradicting(self: ActorSystem, piece: object = None) -> None:
        raise InternalError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(ActorSystem, "launch", contradicting)
        failing = graph(x)
        with pytest.raises(InternalError, match="planted"):
            failing.numpy()
    assert not runtime._open
    assert not runtime._running
    assert not runtime._events
    assert not runtime.memory.tensors
    assert (graph(x).numpy() == want).all()
    assert _runtime(graph) is not runtime


class _Refusing(_Recorder):
    """Cannot start the first."""

    def __init__(self, queue: JobQueue, error: BaseException) -> None:
        super().__init__(queue)
        self.error = error

    def start(self, launch: Launch) -> None:
        super().start(launch)
        if len(self.started) == 1:
            raise self.error


@pytest.mark.parametrize("error", [InternalError("planted"), SystemExit("planted")])
def test_a_launch_that_cannot_be_started_does_not_hold_up_the_next(error: BaseException) -> None:
    """Those that had come meanwhile waited until somebody called again."""
    queue = JobQueue()
    runtime = _Refusing(queue, error)
    launches = [Launch((), (), (), (), 0) for _ in range(2)]
    for launch in launches:
        launch.open(None)
    runtime.coming = [launches[1]]
    with pytest.raises(type(error), match="planted"):
        queue.enter(runtime, launches[0])  # type: ignore[arg-type]
    assert runtime.started == launches


class Climb(nn.Graph):
    """One step of the parameters of three layers, the first of which may be an argument as well."""

    def __init__(self, stages: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(*[nn.Linear(3, 3, bias=False) for _ in range(3)])
        self.add_optimizer(flow.optim.SGD(self.net.parameters(), lr=0.5))
        for stage, block in enumerate(self.net if stages else ()):
            block.config.set_stage(stage)

    def build(self, x: flow.Tensor) -> Any:
        loss = self.net(x).sum()
        loss.backward()
        return loss


@pytest.mark.not_on_cuda
@pytest.mark.parametrize("stages", [False, True])
def test_no_memory_for_an_argument_fails_the_launch(stages: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch of stages never ended; that of one task passed for done, with nothing in its results."""
    graph = Climb(stages)
    weight = graph.net[0].weight
    graph(flow.ones(3, 3)).numpy()
    current_machine().drain()
    before = weight.detach().numpy().copy()

    def short(self: Launch) -> None:
        raise MemoryError("no room for a copy")

    with monkeypatch.context() as patch:
        patch.setattr(Launch, "fetch", short)
        loss = graph(weight.detach())
        with pytest.raises(MemoryError, match="no room") as caught:
            loss.numpy()
    assert any(["while fetching the arguments of graph 'Climb" in note for note in caught.value.__notes__])
    assert (weight.detach().numpy() == before).all()
    graph(weight.detach()).numpy()
    assert (weight.detach().numpy() != before).any()


class _Late(InstructionPolicy):
    """Notes how it was turned away."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []

    def fail(self, failure: Failure) -> None:
        self.failures.append(failure)


def test_what_is_issued_from_within_behind_the_end_is_dropped() -> None:
    """An act that outlived its machine issued another, for which the graph's memory waited."""
    machine = VirtualMachine("ends", cpu_worker="never")
    machine.close()
    late = _Late()
    machine.issue_from_within(Instruction(machine.stream(Device("cpu")), late))
    assert [type(failure.error) for failure in late.failures] == [VirtualMachineClosed]
    assert machine.engine.idle()


def test_what_is_issued_from_within_behind_the_end_is_dropped_once_another_thread_releases_the_turn_lock() -> None:
    machine = VirtualMachine("ends", cpu_worker="never")
    machine.close()
    late = _Late()
    with machine.driver.turn_lock:
        arguments = (Instruction(machine.stream(Device("cpu")), late),)
        thread = threading.Thread(target=machine.issue_from_within, args=arguments)
        thread.start()
        thread.join()
        assert not late.failures
    assert [type(failure.error) for failure in late.failures] == [VirtualMachineClosed]
    assert machine.engine.idle()


def test_what_is_issued_from_within_while_the_machine_ends_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = VirtualMachine("ends", cpu_worker="never")
    stream = machine.stream(Device("cpu"))
    late = _Late()
    # The last thing that is done under the lock.
    monkeypatch.setattr(machine.back_pressure, "wake", lambda: machine.issue_from_within(Instruction(stream, late)))
    machine.close()
    assert [type(failure.error) for failure in late.failures] == [VirtualMachineClosed]
    assert machine.engine.idle()
