"""Graphs on an emulated CUDA device: they are replayed as one launch, and a replay that goes wrong is noticed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.errors import DeviceLost
from vmflow.kernels.cuda import replay
from vmflow.streams.cuda import capturing
from vmflow.streams.cuda.capturing import CapturedGraph

from .emulated import emulated

pytestmark = [pytest.mark.emulated, pytest.mark.host]

SEEDS = range(20)


class Layers(nn.Module):
    """A convolution, a pooling and two linear layers."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(27, 8),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(8, 5),
        )

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """The scores of five classes."""
        scores: flow.Tensor = self.layers(x)
        return scores


class Train(nn.Graph):
    """A step of training."""

    def __init__(self, model: nn.Module, optimizer: Any) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        self.config.allow_fusion(False)

    def build(self, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        """The loss."""
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


def batches(count: int) -> Iterator[tuple[flow.Tensor, flow.Tensor]]:
    generator = np.random.default_rng(3)
    for _ in range(count):
        x = generator.standard_normal((4, 1, 6, 6)).astype(np.float32)
        yield flow.tensor(x, device="cuda"), flow.tensor(generator.integers(0, 5, 4), device="cuda")


def trained(make: Callable[[nn.Module], Any], as_graph: bool, dropout: float = 0.0) -> list[float]:
    flow.manual_seed(1)
    model = Layers(dropout).to("cuda")
    optimizer = make(model)
    graph = Train(model, optimizer)
    losses = []
    for x, y in batches(5):
        if as_graph:
            loss = graph(x, y)
        else:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses


OPTIMIZERS: dict[str, Callable[[nn.Module], Any]] = {
    "sgd": lambda model: flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda model: flow.optim.Adam(model.parameters(), lr=0.01),
    "adamw": lambda model: flow.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_as_a_graph_has_the_losses_of_eager_training(optimizer: str) -> None:
    with emulated("random", 5) as devices:
        eagerly = trained(OPTIMIZERS[optimizer], False, dropout=0.3)
        before = devices.driver.graphs
        assert trained(OPTIMIZERS[optimizer], True, dropout=0.3) == eagerly
        assert (before, devices.driver.graphs) == (0, 4)


def test_a_replay_is_one_launch() -> None:
    with emulated("lazy") as devices:
        flow.manual_seed(1)
        model = Layers(0.5).to("cuda")
        graph = Train(model, flow.optim.Adam(model.parameters()))
        for step, (x, y) in enumerate(batches(6)):
            flow.synchronize()
            launches, graphs = devices.driver.launches, devices.driver.graphs
            graph(x, y).item()
            if step >= 2:
                assert devices.driver.launches == launches
                assert devices.driver.graphs == graphs + 1


class Sequences(nn.Module):
    """A recurrent layer, and scores of five classes from its last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.scores = nn.Linear(6, 5)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """The scores."""
        scores: flow.Tensor = self.scores(self.layer(x)[0][-1])
        return scores


def sequences(count: int) -> Iterator[tuple[flow.Tensor, flow.Tensor]]:
    generator = np.random.default_rng(3)
    for _ in range(count):
        x = generator.standard_normal((4, 2, 3)).astype(np.float32)
        yield flow.tensor(x, device="cuda"), flow.tensor(generator.integers(0, 5, 2), device="cuda")


RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "rnn": lambda: nn.RNN(3, 6),
    "lstm": lambda: nn.LSTM(3, 3, num_layers=2, bidirectional=True),
    "gru": lambda: nn.GRU(3, 6),
}


@pytest.mark.parametrize("layer", RECURRENT)
def test_a_step_of_training_a_recurrent_network_is_one_launch(layer: str) -> None:
    with emulated("lazy") as devices:
        losses: list[list[float]] = []
        for as_graph in (False, True):
            flow.manual_seed(1)
            model = Sequences(RECURRENT[layer]()).to("cuda")
            optimizer = flow.optim.Adam(model.parameters())
            step = Train(model, optimizer)
            losses.append([])
            for number, (x, y) in enumerate(sequences(5)):
                flow.synchronize()
                launches, graphs = devices.driver.launches, devices.driver.graphs
                if as_graph:
                    losses[-1].append(step(x, y).item())
                else:
                    optimizer.zero_grad()
                    loss = step.build(x, y)
                    optimizer.step()
                    losses[-1].append(loss.item())
                if as_graph and number >= 2:
                    assert devices.driver.launches == launches
                    assert devices.driver.graphs == graphs + 1
        assert losses[0] == losses[1]


def test_the_loss_of_unaligned_sequences_is_part_of_a_launch() -> None:
    """A wrong class is reported by the replay in which it is."""

    def build(x: flow.Tensor, targets: flow.Tensor, times: flow.Tensor, lengths: flow.Tensor) -> flow.Tensor:
        logs = nn.functional.log_softmax(x, -1)
        return nn.functional.ctc_loss(logs, targets, times, lengths)

    with emulated("random", 7) as devices:
        graph = nn.Graph.trace(build)
        x = flow.rand(4, 2, 3, device="cuda")
        times, lengths = flow.tensor([4, 3], device="cuda"), flow.tensor([2, 1], device="cuda")
        targets = flow.tensor([[1, 2], [2, 1]], device="cuda")
        expected = build(x, targets, times, lengths).item()
        for _ in range(4):
            assert graph(x, targets, times, lengths).item() == expected
        assert devices.driver.graphs == 3
        with pytest.raises(IndexError, match=r"class index [78] is out of range for 3 classes"):
            graph(x, targets + 6, times, lengths).item()
        assert graph(x, targets, times, lengths).item() == expected


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_resampling_is_part_of_a_launch(mode: str) -> None:
    """Its tables are constants of the host, which a graph may copy."""
    with emulated("random", 8) as devices:
        graph = nn.Graph.trace(lambda x: nn.functional.interpolate(x, size=(5, 3), mode=mode) * 2)
        for seed in range(4):
            x = flow.rand(1, 2, 3, 4, device="cuda", generator=flow.Generator("cuda").manual_seed(seed))
            expected = nn.functional.interpolate(x, size=(5, 3), mode=mode) * 2
            assert graph(x).tolist() == expected.tolist()
        assert devices.driver.graphs == 3


def test_launches_need_not_end_before_the_next_ones_begin() -> None:
    """The host hands over a step after the other, without looking at the device."""
    with emulated("lazy") as devices:
        state = flow.zeros(3, device="cuda")
        graph = nn.Graph.trace(lambda x: state.add_(x))
        ones = flow.ones(3, device="cuda")
        for _ in range(2):
            graph(ones)
        flow.synchronize()
        waits = devices.cuda.simulated.host_waits
        for _ in range(10):
            graph(ones)
        assert devices.cuda.simulated.host_waits == waits
        assert state.tolist() == [12] * 3


def test_random_numbers_are_drawn_anew_at_each_replay() -> None:
    with emulated("random", 2) as devices:
        graph = nn.Graph.trace(lambda x: x + flow.rand(4, 8, device="cuda"))
        zeros = flow.zeros(4, 8, device="cuda")
        flow.manual_seed(7)
        found = [graph(zeros).tolist() for _ in range(5)]
        flow.manual_seed(7)
        assert found == [flow.rand(4, 8, device="cuda").tolist() for _ in range(5)]
        assert devices.driver.graphs == 4


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_of_a_graph_that_is_freed_is_noticed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured graph uses the same addresses forever; its memory must not be freed before it."""
    monkeypatch.setattr(CapturedGraph, "__init__", _keeping_nothing)
    with emulated("random", seed):
        # A softmax along the first dimension asks for scratch memory.
        graph = nn.Graph.trace(lambda x: x.softmax(0) * 2)
        x = flow.rand(40, 50, device="cuda")
        graph(x).tolist()
        result = graph(x)
        with pytest.raises((DeviceLost, RuntimeError), match=r"where no memory is|freed before it had ended"):
            result.tolist()


def _keeping_nothing(self: Any, graph: Any, kept: Any, reports: Any, explains: Any) -> None:
    self._graph, self._kept, self._reports, self._explains = graph, (), reports.loose(), explains


def test_a_graph_that_computes_other_bits_is_not_replayed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if a kernel had a number in it that is another at each launch."""
    calls = []

    def capture(launcher: Any, allocator: Any, work: Callable[[], None]) -> Any:
        calls.append(1)
        return capturing.capture(launcher, allocator, lambda: None)

    monkeypatch.setattr(replay, "capture", capture)
    with emulated("random", 1) as devices:
        graph = nn.Graph.trace(lambda x: x * 2 + 1)
        graph.graph.debug(0)
        x = flow.arange(5.0, device="cuda")
        for number in range(5):
            assert graph(x + number).tolist() == [2 * (place + number) + 1 for place in range(5)]
        assert devices.driver.graphs == len(calls) == 1
    assert "run one by one: the graph of the device has computed other bits" in capsys.readouterr().out


def test_debug_says_that_ops_run_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    with emulated("lazy"):
        graph = nn.Graph.trace(lambda x: (x * 2).relu().sum())
        graph.graph.debug(0)
        for _ in range(4):
            graph(flow.ones(3, device="cuda")).item()
    assert capsys.readouterr().out.count("run as one launch from now on") == 1


def test_ops_that_a_graph_cannot_hold_run_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    with emulated("random", 4) as devices:
        graph = nn.Graph.trace(lambda x: flow.linalg.det(x) * 2)
        graph.graph.debug(0)
        x = flow.eye(3, device="cuda") * 2
        for _ in range(4):
            assert graph(x).item() == 16
        assert not devices.driver.graphs
    printed = capsys.readouterr().out
    assert "run one by one: a graph of the device cannot hold det, which functions of CuPy compute" in printed


def test_products_without_a_library_that_can_be_captured(capsys: pytest.CaptureFixture[str]) -> None:
    with emulated("random", 4) as devices:
        devices.driver.captures_products = False
        graph = nn.Graph.trace(lambda x: x @ x)
        graph.graph.debug(0)
        x = flow.eye(3, device="cuda")
        for _ in range(4):
            assert graph(x).tolist() == x.tolist()
        assert not devices.driver.graphs
    assert "cannot hold a product of matrices that CuPy computes" in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_index_in_a_replay_names_its_op_and_spoils_no_other(seed: int) -> None:
    def build(x: flow.Tensor, at: flow.Tensor) -> flow.Tensor:
        return flow.gather(x * 2, 0, at) + 1  # the line that is named

    with emulated("random", seed) as devices:
        graph = nn.Graph.trace(build)
        x, good = flow.arange(4.0, device="cuda"), flow.tensor([3], device="cuda")
        for _ in range(3):
            assert graph(x, good).tolist() == [7]
        results = [graph(x, flow.tensor([index], device="cuda")) for index in (0, 9, 1)]
        assert results[0].tolist() == [1]
        with pytest.raises(IndexError, match="index 9 is out of range") as caught:
            results[1].tolist()
        notes = "\n".join(caught.value.__notes__)
        assert "while running gather(float32[4], int64[1]) of graph" in notes
        assert f"built at {__file__}" in notes
        assert results[2].tolist() == [3]
        assert devices.driver.graphs == 5


def test_a_wrong_index_is_reported_where_races_are_watched_for() -> None:
    with emulated("random", 3, race_check=True):
        graph = nn.Graph.trace(lambda x, at: flow.gather(x * 2, 0, at) + 1)
        x, at = flow.arange(4.0, device="cuda"), flow.tensor([9], device="cuda")
        for _ in range(4):
            with pytest.raises(IndexError, match="index 9 is out of range"):
                graph(x, at).tolist()


def test_variables_of_a_launch_that_fails_hold_the_failure_until_they_are_written_anew() -> None:
    """It is unknown how far a replay has come, so results of ops before the failing one are poisoned, too."""
    with emulated("random", 7):
        before, behind = [flow.zeros(2, device="cuda") for _ in range(2)]

        def build(x: flow.Tensor, at: flow.Tensor) -> flow.Tensor:
            before.add_(1)
            found = flow.gather(x, 0, at)
            behind.add_(found.sum())
            return found

        graph = nn.Graph.trace(build)
        x, good = flow.ones(4, device="cuda"), flow.tensor([3], device="cuda")
        for _ in range(3):
            graph(x, good).tolist()
        assert (before.tolist(), behind.tolist()) == ([3, 3], [3, 3])
        for held in (graph(x, flow.tensor([9], device="cuda")), before, behind, graph(x, good)):
            with pytest.raises(IndexError, match="index 9"):
                held.tolist()
        before.fill_(5)
        behind.fill_(6)
        assert graph(x, good).tolist() == [1]
        assert (before.tolist(), behind.tolist()) == ([6, 6], [7, 7])


def test_a_failure_in_an_argument_reaches_the_results() -> None:
    with emulated("random", 6):
        graph = nn.Graph.trace(lambda x: x + 1)
        x = flow.arange(4.0, device="cuda")
        for _ in range(3):
            graph(x).tolist()
        bad = flow.gather(x, 0, flow.tensor([7], device="cuda"))
        with pytest.raises(IndexError, match="index 7"):
            graph(bad.expand(4).clone()).tolist()
        assert graph(x).tolist() == [1, 2, 3, 4]


def test_variables_that_move_are_captured_anew() -> None:
    with emulated("random", 8) as devices:
        layer = nn.Linear(3, 3, bias=False).to("cuda")
        graph = nn.Graph.trace(layer)
        x = flow.eye(3, device="cuda")
        for round_ in range(2):
            layer.weight.data = flow.full((3, 3), float(round_), device="cuda")
            before = devices.driver.graphs
            for _ in range(4):
                assert graph(x).tolist() == [[round_] * 3] * 3
            assert devices.driver.graphs == before + 3


def test_eager_ops_before_and_behind_a_replay() -> None:
    with emulated("random", 9):
        state = flow.zeros(3, device="cuda")
        graph = nn.Graph.trace(lambda x: (state + x) * 2)
        for number in range(6):
            state.add_(1)
            result = graph(flow.full((3,), float(number), device="cuda"))
            state.mul_(1)
            assert (result + 1).tolist() == [2 * (number + 1 + number) + 1] * 3


def test_closing_while_replays_are_under_way() -> None:
    with emulated("lazy"):
        graph = nn.Graph.trace(lambda x: x * 3)
        x = flow.ones(3, device="cuda")
        for _ in range(3):
            graph(x).tolist()
        results = [graph(x * number) for number in range(4)]
        graph.graph.close()
        assert [result.tolist() for result in results] == [[3.0 * number] * 3 for number in range(4)]


def test_a_graph_that_is_closed_gives_the_memory_back() -> None:
    with emulated("lazy") as devices:
        graph = nn.Graph.trace(lambda x: x.softmax(0) * 3)
        x = flow.ones(300, 300, device="cuda")
        for _ in range(3):
            graph(x).tolist()
        flow.synchronize()
        held = devices.machine.stream(x.device).allocator.memory.used
        gc.disable()
        try:
            graph.graph.close()
            flow.synchronize()
            devices.machine.stream(x.device).allocator.shrink()
            assert devices.machine.stream(x.device).allocator.memory.used < held
        finally:
            gc.enable()


def test_micro_batches_and_results_by_actors() -> None:
    class Accumulate(Train):
        def __init__(self, model: nn.Module, optimizer: Any) -> None:
            super().__init__(model, optimizer)
            self.config.set_gradient_accumulation_steps(2)

    with emulated("random", 11):
        losses = []
        for device in ("cpu", "cuda"):
            flow.manual_seed(1)
            model = Layers().to(device)
            graph = Accumulate(model, flow.optim.SGD(model.parameters(), lr=0.1))
            losses.append([graph(x.to(device), y.to(device)).to("cpu").numpy() for x, y in batches(4)])
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_an_argument_that_the_graph_changes() -> None:
    with emulated("random", 12):
        for actors in (False, True):
            state = flow.zeros(3, device="cuda")

            def build(x: flow.Tensor, state: flow.Tensor = state) -> flow.Tensor:
                state.add_(1)
                return x * 1

            graph = nn.Graph.trace(build)
            graph.graph.config.use_actors(actors)
            for number in range(4):
                assert graph(state).tolist() == [number] * 3


def test_a_lost_device_fails_the_launches_that_are_left() -> None:
    with emulated("lazy") as devices:
        graph = nn.Graph.trace(lambda x: x + 1)
        x = flow.ones(3, device="cuda")
        for _ in range(3):
            graph(x).tolist()
        results = [graph(x) for _ in range(3)]
        devices.driver.lose(RuntimeError("pulled out"))
        for result in results:
            with pytest.raises(DeviceLost):
                result.tolist()


def test_tensors_on_several_devices_are_refused_in_words() -> None:
    with emulated("lazy"):
        graph = nn.Graph.trace(lambda x: x.to("cuda") + 1)
        with pytest.raises(NotImplementedError, match="has tensors on cpu and cuda:0"):
            graph(flow.ones(3, device="cpu"))
