"""RNN, LSTM, GRU and their cells: against PyTorch, and against their own parts where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from vmflow.vm.story import Story
from vmflow.vm.virtual_machine import current_machine

KINDS: list[tuple[str, dict[str, Any]]] = [
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu"}),
    ("LSTM", {}),
    ("LSTM", {"proj_size": 3}),
    ("GRU", {}),
]


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def _copied(mine: nn.Module, others: Any) -> None:
    mine.load_state_dict({name: flow.tensor(value.numpy()) for name, value in others.state_dict().items()})
    assert list(mine.state_dict()) == list(others.state_dict())


def _all(result: Any) -> list[Any]:
    """The tensors in nested tuples."""
    return [value for part in result for value in _all(part)] if isinstance(result, tuple) else [result]


def _compare(mine: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


def _backward(module: Any, results: list[Any]) -> None:
    """Through fixed weights of every result."""
    sum((result * module.tensor(_numbers(*result.shape, seed=9))).sum() for result in results).backward()


@pytest.mark.parametrize(("name", "options"), KINDS, ids=str)
@pytest.mark.parametrize("form", ["steps first", "batch first", "single", "packed"])
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported:UserWarning")
def test_networks_against_pytorch(name: str, options: dict[str, Any], form: str) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # on small tensors more of them only wait for each other
    cases = [(1, False, True, False), (1, True, False, True), (2, True, True, False), (2, False, True, True)]
    for layers, both, biased, stated in cases:
        more = {**options, "batch_first": form == "batch first", "bidirectional": both, "bias": biased}
        other = getattr(torch.nn, name)(4, 5, layers, **more)
        model = getattr(nn, name)(4, 5, layers, **more)
        _copied(model, other)
        shape = {"batch first": (3, 6, 4), "single": (6, 4)}.get(form, (6, 3, 4))
        states = [] if not stated else [options.get("proj_size", 5), 5][: 1 + (name == "LSTM")]
        given = [_numbers(layers * (1 + both), *([] if form == "single" else [3]), width) for width in states]
        inputs, results = [], []
        for module, network in ((flow, model), (torch, other)):
            leaves = [module.tensor(value, requires_grad=True) for value in (_numbers(*shape), *given)]
            source: Any = leaves[0]
            if form == "packed":
                source = module.nn.utils.rnn.pack_padded_sequence(source, [3, 6, 2], enforce_sorted=False)
            state = None if not stated else tuple(leaves[1:]) if name == "LSTM" else leaves[1]
            output, last = network(source, state)
            if form == "packed":
                output = module.nn.utils.rnn.pad_packed_sequence(output)[0]
            found = _all((output, last))
            _backward(module, found)
            inputs.append(leaves)
            results.append(found)
        _compare(*results)
        _compare(*[[leaf.grad for leaf in leaves] for leaves in inputs])
        _compare(
            [parameter.grad for parameter in model.parameters()], [parameter.grad for parameter in other.parameters()]
        )


@pytest.mark.parametrize(
    ("name", "options"), [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu"}), ("LSTMCell", {}), ("GRUCell", {})]
)
@pytest.mark.parametrize("biased", [True, False])
def test_cells_against_pytorch(name: str, options: dict[str, Any], biased: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # on small tensors more of them only wait for each other
    other, cell = getattr(torch.nn, name)(4, 5, biased, **options), getattr(nn, name)(4, 5, biased, **options)
    _copied(cell, other)
    for shape in ((3, 4), (4,)):
        results = []
        for module, network in ((flow, cell), (torch, other)):
            network.zero_grad()
            source = module.tensor(_numbers(*shape), requires_grad=True)
            after = network(source, network(source))
            _backward(module, _all(after))
            results.append([*_all(after), source.grad, *[parameter.grad for parameter in network.parameters()]])
        _compare(*results)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_a_network_is_its_cell_step_by_step(name: str) -> None:
    model, cell = getattr(nn, name)(3, 4), getattr(nn, name + "Cell")(3, 4)
    cell.load_state_dict({key.removesuffix("_l0"): value for key, value in model.state_dict().items()})
    x = flow.tensor(_numbers(5, 2, 3))
    output, last = model(x)
    state = None
    for step in range(5):
        state = cell(x[step], state)
        shown = state[0] if isinstance(state, tuple) else state
        np.testing.assert_allclose(output[step].detach().numpy(), shown.detach().numpy(), rtol=1e-5, atol=1e-6)
    for one, other in zip(_all(last), _all(state), strict=True):
        np.testing.assert_allclose(one[0].detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_dropout_between_layers_only_and_only_in_training() -> None:
    x = flow.tensor(_numbers(5, 2, 3))
    one = nn.LSTM(3, 4, dropout=0.5)
    np.testing.assert_array_equal(one(x)[0].detach().numpy(), one(x)[0].detach().numpy())
    two = nn.LSTM(3, 4, 2, dropout=0.5)
    assert (two(x)[0].detach().numpy() != two(x)[0].detach().numpy()).any()
    two.eval()
    np.testing.assert_array_equal(two(x)[0].detach().numpy(), two(x)[0].detach().numpy())


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_the_number_of_instructions_does_not_grow_with_the_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = getattr(nn, name)(3, 4)
    counts = []
    for steps in (2, 50):
        x = flow.tensor(_numbers(steps, 2, 3))
        flow.synchronize()
        story = Story(1 << 20)
        monkeypatch.setattr(current_machine().engine, "story", story)
        model(x)[0].sum().backward()
        flow.synchronize()
        # Memory of earlier results may go back in between, by an instruction each.
        names = [value.name for turn in story.turns for value in turn.absorbed]
        counts.append(len([value for value in names if value != "release_tensor"]))
        model.zero_grad()
    assert counts[0] == counts[1] < 12


def test_packed_sequences_keep_their_order() -> None:
    model = nn.GRU(2, 3)
    padded = flow.tensor(_numbers(4, 3, 2))
    packed = pack_padded_sequence(padded, [2, 4, 1], enforce_sorted=False)
    output, last = model(packed)
    assert isinstance(output, PackedSequence)
    unpacked, lengths = pad_packed_sequence(output)
    assert lengths.tolist() == [2, 4, 1]
    for place, length in enumerate([2, 4, 1]):
        alone, end = model(padded[:length, place])
        np.testing.assert_allclose(
            unpacked[:length, place].detach().numpy(), alone.detach().numpy(), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(last[0, place].detach().numpy(), end[0].detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.host
async def test_packed_sequences_do_not_hold_up_an_event_loop() -> None:
    """Their sizes are on the host, so reading them does not block; blocking would warn, and warnings are errors."""
    x = flow.randn(5, 3, 4, requires_grad=True)
    output, _ = nn.LSTM(4, 5, 2, bidirectional=True)(pack_padded_sequence(x, [2, 5, 1], enforce_sorted=False))
    padded, _ = pad_packed_sequence(output)
    padded.sum().backward()
    assert x.grad is not None
    assert (await x.grad).shape == (5, 3, 4)


def test_it_learns_to_remember_the_first_element() -> None:
    """The state carries the first element to the end."""
    model, head = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, 1)
    optimizer = flow.optim.Adam([*model.parameters(), *head.parameters()], lr=0.02)
    x = flow.tensor(np.sign(_numbers(64, 8, 1)))
    losses = []
    for _ in range(80):
        _, (last, _) = model(x)
        loss = (head(last[0]) - x[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    assert losses[0].item() > 0.8
    assert losses[-1].item() < 0.1


def test_attributes_and_representation() -> None:
    model = nn.LSTM(4, 5, 2, bidirectional=True, proj_size=3)
    assert [len(weight) for weight in model.all_weights] == [5] * 4
    assert model.all_weights[1][0] is model.weight_ih_l0_reverse
    assert repr(model) == "LSTM(4, 5, proj_size=3, num_layers=2, bidirectional=True)"
    assert repr(nn.GRUCell(2, 3, bias=False)) == "GRUCell(2, 3, bias=False)"
    assert nn.RNN(2, 3, nonlinearity="relu").nonlinearity == "relu"
    model.flatten_parameters()
    assert nn.GRU(2, 3).double()(flow.ones(2, 1, 2, dtype=flow.float64))[0].dtype is flow.float64


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "LSTM: hidden_size and num_layers must be positive, got 0 and 1", lambda: nn.LSTM(2, 0)),
        (ValueError, r"GRU: the dropout probability .* got 2", lambda: nn.GRU(2, 3, dropout=2)),
        (ValueError, "LSTM: proj_size must be below hidden_size 3, got 3", lambda: nn.LSTM(2, 3, proj_size=3)),
        (ValueError, "RNN: nonlinearity must be 'tanh' or 'relu', not 'sine'", lambda: nn.RNN(2, 3, 1, "sine")),
        (ValueError, r"LSTM: expected 2 features, .* \[4, 1, 3\]", lambda: nn.LSTM(2, 3)(flow.ones(4, 1, 3))),
        (ValueError, r"LSTM: expected an input of 2 or 3", lambda: nn.LSTM(2, 3)(flow.ones(2))),
        (TypeError, "GRU: expected a tensor or a PackedSequence, got list", lambda: nn.GRU(2, 3)([1])),
        (
            ValueError,
            r"GRU: expected an initial state of shape \[1, 5, 3\], got \[1, 4, 3\]",
            lambda: nn.GRU(2, 3)(flow.ones(4, 5, 2), flow.ones(1, 4, 3)),
        ),
        (TypeError, "LSTM: .* a pair of state and cell", lambda: nn.LSTM(2, 3)(flow.ones(4, 5, 2), flow.ones(1, 5, 3))),
        (ValueError, r"GRUCell: expected an input \(batch, 2\) or \(2\)", lambda: nn.GRUCell(2, 3)(flow.ones(4))),
        (
            ValueError,
            r"LSTMCell: expected a state of 2 of shape \[4, 3\], got \[4, 3\] and \[4, 2\]",
            lambda: nn.LSTMCell(2, 3)(flow.ones(4, 2), (flow.ones(4, 3), flow.ones(4, 2))),
        ),
    ],
)
def test_bad_arguments(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("mode", "named"),
    [
        ("LSTM", lambda: nn.LSTM(2, 3, 2, bidirectional=True)),
        ("GRU", lambda: nn.GRU(2, 3, 2, bidirectional=True)),
        ("RNN_RELU", lambda: nn.RNN(2, 3, 2, nonlinearity="relu", bidirectional=True)),
    ],
)
def test_the_base_by_its_mode(mode: str, named: Any) -> None:
    layer, other = nn.RNNBase(mode, 2, 3, num_layers=2, bidirectional=True), named()
    assert other.mode == mode
    layer.load_state_dict(other.state_dict())
    x = flow.rand(4, 5, 2)
    np.testing.assert_array_equal(layer(x)[0].detach().numpy(), other(x)[0].detach().numpy())
    with pytest.raises(ValueError, match="the mode must be one of RNN_TANH, RNN_RELU, LSTM, GRU, not 'lstm'"):
        nn.RNNBase(mode.lower() if mode == "LSTM" else "lstm", 2, 3)
    with pytest.raises(ValueError, match="only an LSTM has projections"):
        nn.RNNBase("GRU", 2, 3, proj_size=1)
