"""Chaos: random calls of random graphs while things go wrong, against the same steps taken eagerly, one by one.

A round is a few programs, lists of steps, played at once by a script, by threads or by tasks of a loop.  Each has
graphs, arguments and parameters of its own; all share one more graph, which changes nothing.  Afterwards every program
is played again, eagerly and alone, and must have found the same values to the bit, or the same errors.  Where it is a
matter of time what happens (a deadline, a device that fails, a machine that is closed in the middle), the error that
may come instead is allowed.  After a device has failed in a step of training, its results are unknown.

In some rounds there are two machines.  Programs begin on one of them, and move to the other in the middle of things.

    python -m tests.graph_mode.chaos --rounds 1000 --first-seed 0
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import logging
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

import vmflow as flow
from vmflow import nn
from vmflow.context import MODE
from vmflow.devices import device as Device
from vmflow.errors import Cancelled, DeadlineExceeded, VirtualMachineClosed
from vmflow.graph_mode.launch import Launch
from vmflow.graph_mode.runtime import GraphRuntime
from vmflow.streams import DeviceMemory, SimulatedDevice
from vmflow.vm import VirtualMachine, stream_table
from vmflow.vm.stream_table import GARBAGE

MODES: Final = ("lazy", "random", "inline", "worker")
SIM: Final = "sim:6"  # nobody else's
# "cut": by micro-batches.
KINDS: Final = (
    *("plain", "hop", "stages", "pick", "train", "train hop", "echo"),
    *("cut plain", "cut stages", "cut train", "cut train hop"),
)
# Far longer than anything here takes, in seconds.
PATIENCE: Final = 10.0
ROWS, WIDTH = 3, 4


class DeviceFault(OSError):
    """The error with which the simulated device fails."""


class Contradiction(AssertionError):
    """A graph did something else than eager code."""


class Stalled(BaseException):
    """Nothing has ended for a long time."""


def check(good: bool, what: str) -> None:
    if not good:
        raise Contradiction(what)


# Rounds


class Step(NamedTuple):
    """One thing that a program does; see `Player`."""

    kind: str
    which: int = 0
    detail: Any = None


class Round(NamedTuple):
    """Programs that are played together.

    Attributes:
        graphs: by program, the kinds of its graphs, and how many slots their registers have.
        faults: after how many pieces of work the device fails, 0 for never.
        abort: whether the machines are closed with everything under way.
        machines: how many there are.
    """

    seed: int
    mode: str
    surroundings: str
    graphs: tuple[tuple[tuple[str, int], ...], ...]
    programs: tuple[tuple[Step, ...], ...]
    faults: int
    abort: bool
    gather: int
    window: int
    race_check: bool
    machines: int


def make_round(seed: int, mode: str) -> Round:
    """The round of this seed."""
    choose = random.Random(f"{seed} {mode}")
    surroundings = choose.choices(("script", "loop", "threads"), (4, 4, 3))[0]
    count = 1 if surroundings == "script" else choose.randint(1, 3)
    faults = choose.randint(1, 60) if mode in ("lazy", "random") and choose.random() < 0.3 else 0
    abort = choose.random() < 0.2
    machines = 2 if choose.random() < 0.3 else 1
    graphs = tuple(
        [
            tuple([(choose.choice(KINDS), choose.randint(1, 3)) for _ in range(choose.randint(1, 2))])
            for _ in range(count)
        ]
    )
    programs = tuple([_program(choose, len(graph), choose.randint(3, 22), machines) for graph in graphs])
    gather, window = choose.choice((1, 32, 1 << 60)), choose.choice((1, 8, 64))
    race_check = choose.random() < 0.25
    return Round(seed, mode, surroundings, graphs, programs, faults, abort, gather, window, race_check, machines)


def _program(choose: random.Random, graphs: int, length: int, machines: int) -> tuple[Step, ...]:
    weights = {
        "call": 40,
        "shared": 8,
        "overwrite": 12,
        "param": 6,
        "swap": 2,
        "misfit": 2,
        "read": 14,
        "read params": 4,
        "glance": 6,
        "drop": 6,
        "scoped": 6,
        "forget": 3,
        "close": 3,
        "collect": 1,
        "breathe": 6,
        "move": 10 if machines > 1 else 0,
    }
    steps: list[Step] = []
    for _ in range(length):
        kind = choose.choices(list(weights), list(weights.values()))[0]
        which = choose.randrange(graphs)
        detail: Any = choose.randrange(1 << 16)
        if kind == "scoped":
            detail = choose.choice(("before", "after", "deadline", "passed"))
        steps.append(Step(kind, which, detail))
    return tuple(steps)


# Models


class Net(nn.Module):
    """A small model, whose computation depends on its kind.

    Args:
        kind: one of `KINDS`.
        home, away: devices.
    """

    def __init__(self, kind: str, seed: int, home: str, away: str) -> None:
        super().__init__()
        numbers = np.random.default_rng(seed)
        self.kind, self.home, self.away = kind, home, away
        self.one = Layer(numbers, home)
        self.two = Layer(numbers, away if "hop" in kind else home)
        self.three = Layer(numbers, home)

    def forward(self, x: flow.Tensor, index: flow.Tensor) -> Any:
        if self.kind == "pick":
            return {"picked": flow.index_select(self.one.weight * 2, 0, index), "x": x + 1}
        if self.kind == "echo":
            return [x, self.one.weight, self.one.weight + x.sum()]
        if self.kind in ("plain", "cut plain"):
            y = self.one(x)
            return y, y.sum()
        if "hop" in self.kind:
            there = self.two(self.one(x).to(self.away))
            return {"back": self.three(there.to(self.home)), "there": there}
        return self.three(self.two(self.one(x)))


class Layer(nn.Module):
    """A product, a sum and a tanh."""

    def __init__(self, numbers: np.random.Generator, where: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            flow.tensor(numbers.standard_normal((WIDTH, WIDTH)), dtype=flow.float32, device=where)
        )
        self.bias = nn.Parameter(flow.tensor(numbers.standard_normal(WIDTH), dtype=flow.float32, device=where))

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return (x @ self.weight + self.bias).tanh()


def _train(net: Net, x: flow.Tensor, index: flow.Tensor, parts: int = 1) -> Any:
    """A loss, behind its backward pass; `parts` of them make a step."""
    result = net(x, index)
    result = result["back"] if isinstance(result, dict) else result
    loss = (result * result).mean()
    (loss / parts if parts > 1 else loss).backward()
    return loss


class Run(nn.Graph):
    """A net as a graph."""

    def __init__(self, net: Net, optimizer: Any, slots: int) -> None:
        super().__init__()
        self.net = net
        self.config.allow_fusion(False)
        self.config.set_outputs_buffer_size(slots)
        if "cut" in net.kind:
            self.config.set_gradient_accumulation_steps(ROWS)
        if net.kind.removeprefix("cut ") in ("stages", "train") and slots > 1:
            for stage, block in enumerate((self.net.one, self.net.two, self.net.three)):
                block.config.set_stage(stage)
        if optimizer is not None:
            self.add_optimizer(optimizer)

    def build(self, x: flow.Tensor, index: flow.Tensor) -> Any:
        if "train" in self.net.kind:
            return _train(self.net, x, index)
        return self.net(x, index)


def _call_eagerly(net: Net, optimizer: Any, x: flow.Tensor, index: flow.Tensor) -> Any:
    rows = [(x[row : row + 1], index[row : row + 1]) for row in range(ROWS)] if "cut" in net.kind else [(x, index)]
    if optimizer is None:
        with flow.no_grad():
            # A graph hands out copies.
            found = [_copied(net(*row)) for row in rows]
        return found[0] if len(rows) == 1 else _packed(found)
    optimizer.zero_grad()
    losses = [_train(net, *row, len(rows)).detach() for row in rows]
    optimizer.step()
    return losses[0] if len(rows) == 1 else flow.stack(losses)


def _packed(parts: list[Any]) -> list[flow.Tensor]:
    """The results of all micro-batches, one after the other."""
    found = zip(*[_leaves(part) for part in parts], strict=True)
    return [flow.stack(list(value)) if value[0].ndim == 0 else flow.cat(list(value)) for value in found]


def _copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: value.clone() for name, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [tensor.clone() for tensor in tree]
    return tree.clone()


def _leaves(tree: Any) -> list[flow.Tensor]:
    if isinstance(tree, dict):
        return list(tree.values())
    return list(tree) if isinstance(tree, (tuple, list)) else [tree]


# Players


class Player:
    """Plays one program.

    Args:
        rounds: whose program.
        number: which of its programs.
        graphed: whether graphs are called; else the same is done eagerly.
        shared: the graph, or net, of all.
        machines: to move between.

    Attributes:
        found: by step, the values or the error that was read.
        uncertain: the steps whose results may be an error instead.
        names: by net, the names of all graphs there were.
    """

    def __init__(
        self, rounds: Round, number: int, graphed: bool, shared: Any, machines: tuple[VirtualMachine, ...] = ()
    ) -> None:
        self.round = rounds
        self.number = number
        self.graphed = graphed
        self.shared = shared
        self.steps = rounds.programs[number]
        self.kinds = rounds.graphs[number]
        home, away = _places(rounds.mode, number) if graphed else ("cpu", "cpu")
        self.home = home
        self.nets = [Net(kind, rounds.seed + at, home, away) for at, (kind, _) in enumerate(self.kinds)]
        self.optimizers = [
            flow.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) if "train" in net.kind else None for net in self.nets
        ]
        self.machines = machines
        self.names: list[set[str]] = [set() for _ in self.nets]
        self.graphs = [self._graph(at) for at in range(len(self.nets))] if graphed else []
        numbers = np.random.default_rng(rounds.seed + 100 + number)
        self.x = flow.tensor(numbers.standard_normal((ROWS, WIDTH)), dtype=flow.float32, device=home)
        self.index = flow.tensor([0, 2, 1], device=home)
        self.results: dict[int, list[flow.Tensor]] = {}
        self.found: dict[int, list[Any]] = {}
        self.uncertain: set[int] = set()
        self.failed: BaseException | None = None

    def _graph(self, at: int) -> Run:
        made = Run(self.nets[at], self.optimizers[at], self.kinds[at][1])
        self.names[at].add(made.name)
        return made

    def go_to(self, machine: int) -> None:
        """Issue the following steps on this machine."""
        MODE.set(MODE.get().replace(machine=self.machines[machine % len(self.machines)]))

    # Each step returns the tensors to wait for, if they are to be read.

    def take(self, position: int) -> int | None:
        """Take a step; returns the one whose results are to be read now."""
        step = self.steps[position]
        kind, which = step.kind, step.which
        if kind == "call":
            self._call(position, which)
        elif kind == "shared":
            self._keep(position, self.shared(self.x, self.index) if self.graphed else self._shared_eagerly())
        elif kind == "scoped":
            self._scoped(position, which, step.detail)
        elif kind == "overwrite":
            self._overwrite(step.detail)
        elif kind == "param":
            with flow.no_grad():
                self.nets[which].one.weight.mul_(0.5)
        elif kind == "swap":
            weight = self.nets[which].one.weight
            weight.data = weight.detach().clone() * 2
        elif kind == "misfit":
            self._misfit(which)
        elif kind == "read params":
            self.results[position] = [parameter.detach().clone() for parameter in self.nets[which].parameters()]
            return position
        elif kind in ("read", "drop", "glance"):
            left = [result for result in self.results if result not in self.found]
            chosen = left[step.detail % len(left)] if left else None
            if kind == "read":
                return chosen
            if kind == "drop" and chosen is not None:
                del self.results[chosen]
        elif kind == "forget" and self.graphed:
            self.graphs[which] = self._graph(which)
        elif kind == "close" and self.graphed:
            self.graphs[which].close()
        elif kind == "move" and self.graphed:
            self.go_to(step.detail)
        elif kind == "collect":
            gc.collect()
        return None

    def glanced(self, position: int) -> flow.Tensor | None:
        """The result that this step awaits and then gives up; None if it does not."""
        step = self.steps[position]
        left = [result for result in self.results if result not in self.found]
        return self.results[left[step.detail % len(left)]][0] if step.kind == "glance" and left else None

    def _call(self, position: int, which: int) -> None:
        if self.graphed:
            self._keep(position, self.graphs[which](self.x, self.index))
        else:
            self._keep(position, _call_eagerly(self.nets[which], self.optimizers[which], self.x, self.index))

    def _shared_eagerly(self) -> Any:
        return _call_eagerly(self.shared, None, self.x, self.index)

    def _scoped(self, position: int, which: int, how: str) -> None:
        """A call that may be dropped; only where nothing is changed by it."""
        if "train" in self.nets[which].kind or not self.graphed:
            if "train" not in self.nets[which].kind:
                self._call(position, which)
                self.uncertain.add(position)
            return
        self.uncertain.add(position)
        if how in ("deadline", "passed"):
            with flow.scope(deadline=time.monotonic() + (-1.0 if how == "passed" else 1e-3)):
                self._call(position, which)
            return
        with flow.scope() as around:
            if how == "before":
                around.cancel()
            self._call(position, which)
        if how == "after":
            around.cancel()

    def _overwrite(self, number: int) -> None:
        """In place, behind calls that are under way."""
        if number % 3 == 0:
            # Now and then out of bounds.
            self.index.fill_(number // 3 % 6)
        elif number % 3 == 1:
            self.x.mul_(-0.5)
        else:
            self.x.fill_(number % 7)

    def _misfit(self, which: int) -> None:
        """A parameter of another shape is refused, and changes nothing."""
        if not self.graphed or not self.graphs[which].is_compiled or self.nets[which].kind == "pick":
            return
        weight = self.nets[which].one.weight
        kept = weight.data
        weight.data = flow.zeros(1, WIDTH, device=self.home)
        try:
            self.graphs[which](self.x, self.index)
        except ValueError as error:
            check("net.one.weight" in str(error), f"refused with {error}")
        else:
            raise Contradiction("a parameter of another shape was not refused")
        finally:
            weight.data = kept

    def _keep(self, position: int, tree: Any) -> None:
        self.results[position] = _leaves(tree)

    def rest(self) -> list[int]:
        """The tensors to read in the end; the others are never read."""
        choose = random.Random(self.round.seed)
        return [result for result in self.results if result not in self.found and choose.random() < 0.8]


def _places(mode: str, number: int) -> tuple[str, str]:
    if mode in ("inline", "worker"):
        return "cpu", "cpu"
    return ("cpu", SIM) if number % 2 == 0 else (SIM, "cpu")


def _value(read: Any) -> Any:
    """The result of reading: an array, or the error."""
    try:
        return read()
    except (Exception, Cancelled, DeadlineExceeded) as error:
        return error


def play_plainly(player: Player) -> None:
    """By a script or a thread."""
    player.go_to(player.number)
    for position in range(len(player.steps)):
        chosen = player.take(position)
        if chosen is not None:
            player.found[chosen] = [_value(result.numpy) for result in player.results[chosen]]
    if not player.round.abort or not player.graphed:
        for chosen in player.rest():
            player.found[chosen] = [_value(result.numpy) for result in player.results[chosen]]


async def _read(player: Player, chosen: int) -> None:
    player.found[chosen] = []
    for tensor in player.results[chosen]:
        try:
            await tensor
        except asyncio.CancelledError:
            raise
        except (Exception, Cancelled, DeadlineExceeded) as error:
            player.found[chosen].append(error)
        else:
            player.found[chosen].append(_value(tensor.numpy))


async def play_task(player: Player) -> None:
    """By a coroutine."""
    player.go_to(player.number)
    for position, step in enumerate(player.steps):
        tensor = player.glanced(position)
        if tensor is not None:
            waiting = asyncio.ensure_future(_wait(tensor))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait((waiting,))
            if not waiting.cancelled():
                waiting.exception()
            continue
        chosen = player.take(position)
        if chosen is not None:
            await _read(player, chosen)
        if step.kind == "breathe":
            await asyncio.sleep(0)
    if not player.round.abort:
        for chosen in player.rest():
            await _read(player, chosen)


async def _wait(tensor: flow.Tensor) -> None:
    await tensor


# A round


class _Listener(logging.Handler):
    """Nothing may be reported but failures at which nobody looked."""

    def __init__(self) -> None:
        super().__init__()
        self.stalled = ""

    def emit(self, record: logging.LogRecord) -> None:
        if "nothing has ended" in record.getMessage():
            self.stalled = record.getMessage()
            raise Stalled(self.stalled)


class Abort(Exception):
    """Leaves the machine's block with everything under way."""


@contextmanager
def _surroundings(mode: str, seed: int) -> Iterator[None]:
    logger = logging.getLogger("vmflow")
    before, surrounding = (logger.propagate, logger.handlers[:]), MODE.get()
    logger.handlers[:], logger.propagate = [_Listener()], False
    simulated = mode in ("lazy", "random")
    if simulated:
        stream_table._simulated[Device(SIM)] = SimulatedDevice(SIM, mode, seed=seed)
        stream_table._memories[Device(SIM)] = DeviceMemory(SIM, garbage=GARBAGE)
    try:
        yield
    finally:
        MODE.set(surrounding)
        logger.propagate, logger.handlers[:] = before
        if simulated:
            del stream_table._simulated[Device(SIM)], stream_table._memories[Device(SIM)]


def run(rounds: Round) -> Counter[str]:
    """Play a round and check everything; returns figures about it.

    Raises:
        Contradiction: if a graph did something else than eager code.
        Stalled: if nothing ended any more.
    """
    runtimes: list[GraphRuntime] = []
    torn: set[str] = set()
    make, over = GraphRuntime.__init__, GraphRuntime.over

    def noted(self: GraphRuntime, *arguments: Any) -> None:
        make(self, *arguments)
        runtimes.append(self)

    def watched(self: GraphRuntime, launch: Launch) -> None:
        if launch.failure is not None:
            torn.add(self.name)
        over(self, launch)

    before = threading.active_count()
    GraphRuntime.__init__, GraphRuntime.over = noted, watched  # type: ignore[method-assign,assignment]
    try:
        with _surroundings(rounds.mode, rounds.seed):
            machines = tuple([_machine(rounds, number) for number in range(rounds.machines)])
            players = _play(rounds, machines)
            figures = _compare(rounds, players, torn)
            del players
            _leave_nothing(machines, runtimes)
    finally:
        GraphRuntime.__init__, GraphRuntime.over = make, over  # type: ignore[method-assign]
    check(threading.active_count() == before, f"threads are left: {threading.enumerate()}")
    return figures


def _machine(rounds: Round, number: int) -> VirtualMachine:
    return VirtualMachine(
        f"chaos {number}",
        gather=rounds.gather,
        window=rounds.window,
        cpu_worker={"inline": "never", "worker": "always"}.get(rounds.mode, "auto"),
        race_check=rounds.race_check,
        stall_after=PATIENCE,
    )


def _play(rounds: Round, machines: tuple[VirtualMachine, ...]) -> list[Player]:
    if rounds.surroundings == "loop":
        made: list[Player] = []
        asyncio.run(_play_loop(rounds, machines, made))
        players, made[:] = made[:], []
        return players
    mode = MODE.get().replace(machine=machines[0])
    token = MODE.set(mode)
    try:
        players = _players(rounds, machines)
        _plant(rounds)
        if rounds.surroundings == "script":
            play_plainly(players[0])
        else:
            threads = [threading.Thread(target=_thread, args=(player, mode)) for player in players]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(6 * PATIENCE)
                check(not thread.is_alive(), f"a thread hangs\n{[value.snapshot() for value in machines]!r}")
            for player in players:
                if player.failed is not None:
                    raise player.failed
        if rounds.abort:
            for machine in machines:
                machine.close()
            _read_what_is_left(players)
        else:
            _drain(machines)
    finally:
        MODE.reset(token)
    return players


def _drain(machines: tuple[VirtualMachine, ...]) -> None:
    # The end of one machine may leave something to do for another.
    for _ in range(5):
        for machine in machines:
            machine.drain()


def _thread(player: Player, mode: Any) -> None:
    MODE.set(mode)
    try:
        play_plainly(player)
    except BaseException as error:
        player.failed = error


async def _play_loop(rounds: Round, machines: tuple[VirtualMachine, ...], players: list[Player]) -> None:
    try:
        async with asyncio.timeout(6 * PATIENCE), AsyncExitStack() as blocks:
            for machine in machines:
                await blocks.enter_async_context(machine)
            players += _players(rounds, machines)
            _plant(rounds)
            async with asyncio.TaskGroup() as tasks:
                for player in players:
                    tasks.create_task(play_task(player))
            if rounds.abort:
                raise Abort
    except Abort:
        assert all([machine.closed for machine in machines])
    if rounds.abort:
        _read_what_is_left(players)


def _players(rounds: Round, machines: tuple[VirtualMachine, ...]) -> list[Player]:
    home, away = _places(rounds.mode, 0)
    shared = Run(Net("hop", rounds.seed + 50, home, away), None, 2)
    found = [Player(rounds, number, True, shared, machines) for number in range(len(rounds.programs))]
    for player in found:
        # The shared graph takes arguments on its own devices.
        if player.home != home:
            player.shared = Run(Net("hop", rounds.seed + 50, player.home, home), None, 1)
    return found


def _plant(rounds: Round) -> None:
    if rounds.faults:
        stream_table.simulated_device(Device(SIM)).fail_after(rounds.faults, DeviceFault("told to fail"))


def _read_what_is_left(players: list[Player]) -> None:
    """Of a machine that is closed; nothing may wait for ever."""
    for player in players:
        for chosen in player.rest():
            player.found[chosen] = [_value(result.numpy) for result in player.results[chosen]]


def _compare(rounds: Round, players: list[Player], torn: set[str]) -> Counter[str]:
    figures: Counter[str] = Counter()
    machine = VirtualMachine("oracle", cpu_worker="never")
    token = MODE.set(MODE.get().replace(machine=machine))
    try:
        for player in players:
            _judge(rounds, player, figures, torn)
    finally:
        MODE.reset(token)
        machine.close()
    return figures


def _judge(rounds: Round, player: Player, figures: Counter[str], torn: set[str]) -> None:
    oracle = Player(rounds, player.number, False, Net("hop", rounds.seed + 50, "cpu", "cpu"))
    want: dict[int, list[Any]] = {}
    for position in range(len(oracle.steps)):
        if oracle.steps[position].kind in ("read", "drop", "glance"):
            continue
        oracle.take(position)
        if position in oracle.results:
            want[position] = [_value(result.numpy) for result in oracle.results[position]]
    unknown = [
        number
        for number, names in enumerate(player.names)
        if rounds.faults and player.optimizers[number] and names & torn
    ]
    for position, values in player.found.items():
        step = oracle.steps[position]
        if step.kind in ("call", "scoped", "read params") and step.which in unknown:
            _only_faults(rounds, values, figures)
            continue
        # A launch fails as a whole.
        errors = [value for value in want[position] if isinstance(value, BaseException)]
        if errors and step.kind in ("call", "shared", "scoped"):
            want[position] = errors[:1] * len(values)
        for number, (have, wanted) in enumerate(zip(values, want[position], strict=True)):
            _same(
                rounds,
                f"step {position} ({step}) of program {player.number}, value {number}",
                have,
                wanted,
                figures,
                position in player.uncertain,
            )


def _only_faults(rounds: Round, values: list[Any], figures: Counter[str]) -> None:
    """The variables of a failed step hold anything, or the device's error."""
    allowed = (DeviceFault, IndexError, VirtualMachineClosed) if rounds.abort else (DeviceFault, IndexError)
    for value in values:
        figures["after a fault"] += 1
        if isinstance(value, BaseException) and not isinstance(value, allowed):
            raise Contradiction(f"{value!r} instead of what the device has left") from value


def _same(rounds: Round, what: str, have: Any, want: Any, figures: Counter[str], uncertain: bool) -> None:
    if isinstance(have, BaseException):
        figures[type(have).__name__] += 1
        allowed: tuple[type[BaseException], ...] = ()
        if uncertain:
            allowed += (Cancelled, DeadlineExceeded)
        if rounds.faults:
            allowed += (DeviceFault,)
        if rounds.abort:
            allowed += (VirtualMachineClosed,)
        if isinstance(want, BaseException):
            allowed += (type(want),)
        if not isinstance(have, allowed):
            raise Contradiction(f"{what}: {have!r} instead of {want!r}") from have
        return
    check(not isinstance(want, BaseException), f"{what}: {have!r} instead of {want!r}")
    figures["values"] += 1
    check(have.shape == want.shape and bool((have == want).all()), f"{what}: found\n{have}\ninstead of\n{want}")


def _leave_nothing(machines: tuple[VirtualMachine, ...], runtimes: list[GraphRuntime]) -> None:
    gc.collect()
    _drain(machines)
    for machine in machines:
        machine.engine.check_invariants()
        check(machine.state != "aborted", "something was still running when the machine had been closed")
        check(machine.engine.idle(), f"the engine is not idle: {machine!r}")
        check(not machine.has_waiters(), "somebody still waits")
    for runtime in runtimes:
        check(not runtime._open, f"{runtime.name} has launches that are not over: {runtime._open}")
        check(runtime.system is None or runtime.system.ended(), f"{runtime.name} has actors left")
        check(not runtime.memory.tensors, f"{runtime.name} has kept its memory")
        check(not runtime._running, f"{runtime.name} has kept launches: {runtime._running}")
    # Those that are still referred to must hold nobody's memory: so they are not dropped before that is counted.
    for machine in machines:
        if machine.races is not None:
            check(machine.races.detector.races == [], f"races: {machine.races.detector.races}")
        machine.close()
    gc.collect()
    for device, allocator in [value for machine in machines for value in machine.memory.allocators.items()]:
        allocator.check_invariants()
        allocator.largest(1)  # takes dropped memory back that was not freed
        left = allocator.statistics()["allocated_bytes.all.current"]
        check(left == 0, f"{left} bytes of {device} are left: {allocator.largest(3)}")


def main() -> int:
    """Play many rounds from the command line."""
    parser = argparse.ArgumentParser(description="Random calls of graphs against eager code.")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--mode", choices=MODES, help="by default all in turn")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first that fails")
    options = parser.parse_args()
    gc.collect()
    gc.freeze()
    figures: Counter[str] = Counter()
    failed: list[str] = []
    began = time.perf_counter()
    for seed in range(options.first_seed, options.first_seed + options.rounds):
        rounds = make_round(seed, options.mode or MODES[seed % len(MODES)])
        faulthandler.dump_traceback_later(90, exit=True)
        try:
            figures += run(rounds)
        except BaseException as error:
            failed.append(f"{seed} {rounds.mode} {rounds.surroundings}: {type(error).__name__}")
            print(f"seed {seed}: {rounds}")
            traceback.print_exception(error)
            if not options.keep_going:
                return 1
    faulthandler.cancel_dump_traceback_later()
    told = ", ".join([f"{count} {what}" for what, count in sorted(figures.items())])
    print(f"{options.rounds} rounds in {time.perf_counter() - began:.0f} s, {len(failed)} failed: {told}")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
