"""Tensors of modules that are computed from others, against PyTorch's."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import pickle
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.nn.utils import parametrizations, parametrize


class Doubled(nn.Module):
    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return x * 2

    def right_inverse(self, x: flow.Tensor) -> flow.Tensor:
        return x / 2


class Squared(nn.Module):
    """Without an inverse."""

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return x * x


class Added(nn.Module):
    """A parametrization by two tensors."""

    def forward(self, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        return x + y

    def right_inverse(self, x: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        return x * 0.25, x * 0.75


class Reshaped(nn.Module):
    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return x.reshape(-1)


class Graph(nn.Graph):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def build(self, x: flow.Tensor) -> Any:
        return self.module(x)


def doubled() -> Any:
    return parametrize.register_parametrization(nn.Linear(3, 2), "weight", Doubled())


def test_it_begins_with_the_present_values() -> None:
    layer = nn.Linear(3, 2)
    weight, values = layer.weight, layer.weight.tolist()
    optimizer = flow.optim.SGD([weight], lr=1.0)
    assert parametrize.register_parametrization(layer, "weight", Doubled()) is layer
    assert layer.weight.tolist() == values
    original = layer.parametrizations.weight.original
    assert original is weight
    np.testing.assert_allclose(original.detach().numpy() * 2, values)
    layer.weight.sum().backward()
    optimizer.step()
    np.testing.assert_allclose(layer.weight.detach().numpy(), np.array(values) - 4, rtol=1e-6)
    assert [name for name, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert type(layer).__name__ == "ParametrizedLinear"
    assert isinstance(layer, nn.Linear)
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert parametrize.type_before_parametrizations(nn.ReLU()) is nn.ReLU


def test_several_parametrizations_are_applied_in_turn() -> None:
    layer = doubled()
    parametrize.register_parametrization(layer, "weight", Squared())
    found = layer.parametrizations.weight
    assert len(found) == 2
    assert [type(value) for value in found] == [Doubled, Squared]
    assert type(found[:1]) is nn.ModuleList
    np.testing.assert_allclose(layer.weight.detach().numpy(), (found.original.detach().numpy() * 2) ** 2, rtol=1e-6)
    with pytest.raises(RuntimeError, match="Squared defines none"):
        layer.weight = flow.ones(2, 3)
    parametrize.register_parametrization(layer, "bias", Squared())
    assert parametrize.is_parametrized(layer, "bias")
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer).__name__ == "ParametrizedLinear"
    assert not parametrize.is_parametrized(layer, "weight")
    parametrize.remove_parametrizations(layer, "bias", leave_parametrized=False)
    assert type(layer) is nn.Linear
    assert not parametrize.is_parametrized(layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert "parametrizations" not in layer._modules


def test_a_tensor_of_two() -> None:
    layer: Any = nn.Linear(3, 2)
    values = layer.weight.detach().numpy().copy()
    parametrize.register_parametrization(layer, "weight", Added())
    found = layer.parametrizations.weight
    assert (found.is_tensor, found.ntensors) == (False, 2)
    assert list(layer.state_dict()) == [
        "bias",
        "parametrizations.weight.original0",
        "parametrizations.weight.original1",
    ]
    np.testing.assert_allclose(layer.weight.detach().numpy(), values, rtol=1e-6)
    layer.weight = flow.ones(2, 3)
    assert found.original1.tolist() == [[0.75] * 3] * 2
    with pytest.raises(ValueError, match="none of which can take its place"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "weight")
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.requires_grad
    assert layer.weight.tolist() == [[1] * 3] * 2


def test_a_buffer() -> None:
    layer = nn.BatchNorm1d(2)
    parametrize.register_parametrization(layer, "running_var", Doubled())
    assert "parametrizations.running_var.original" in dict(layer.named_buffers())
    layer.eval()
    x = flow.ones(1, 2)
    np.testing.assert_allclose(layer(x).detach().numpy(), np.ones((1, 2)), rtol=1e-4)
    parametrize.remove_parametrizations(layer, "running_var")
    assert list(layer._buffers)[-1] == "running_var"


def test_removing_a_parametrization() -> None:
    layer = doubled()
    original, values = layer.parametrizations.weight.original, layer.weight.tolist()
    assert parametrize.remove_parametrizations(layer, "weight") is layer
    assert layer.weight is original
    assert layer.weight.tolist() == values
    layer = doubled()
    half = layer.parametrizations.weight.original.tolist()
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight.tolist() == half
    with pytest.raises(ValueError, match="'weight' of Linear is not parametrized"):
        parametrize.remove_parametrizations(layer, "weight")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_copies_stand_alone(copied: Any) -> None:
    layer = doubled()
    again = copied(layer)
    assert type(again) is type(layer)
    assert again.weight.tolist() == layer.weight.tolist()
    with flow.no_grad():
        again.parametrizations.weight.original.zero_()
    parametrize.remove_parametrizations(again, "weight")
    assert again.weight.abs().sum().item() == 0
    assert parametrize.is_parametrized(layer)
    assert layer.weight.abs().sum().item() > 0


def test_state_dicts() -> None:
    layer, other = doubled(), doubled()
    other.load_state_dict(layer.state_dict())
    assert other.weight.tolist() == layer.weight.tolist()
    with pytest.raises(RuntimeError, match=r"missing keys: 'parametrizations\.weight\.original'"):
        other.load_state_dict(nn.Linear(3, 2).state_dict())


def test_within_cached_it_is_computed_once() -> None:
    calls: list[int] = []

    class Counted(Doubled):
        def forward(self, x: flow.Tensor) -> flow.Tensor:
            calls.append(1)
            return super().forward(x)

    layer = parametrize.register_parametrization(nn.Linear(3, 2), "weight", Counted())
    calls.clear()
    with parametrize.cached():
        first = layer.weight
        with parametrize.cached():
            assert layer.weight is first
        assert layer.weight is first
        assert len(calls) == 1
        with flow.no_grad():
            assert not layer.weight.requires_grad
        assert layer.weight is first
        (first.sum() + layer.weight.sum()).backward()
    assert layer.weight is not first
    assert layer.parametrizations.weight.original.grad.tolist() == [[4] * 3] * 2
    with parametrize.cached():
        assert layer.weight is not first


async def test_a_task_that_begins_within_cached_computes_anew_after_its_end() -> None:
    layer = parametrize.register_parametrization(nn.Linear(3, 2), "weight", Doubled())
    shared, ended = [], asyncio.Event()

    async def read(own_block: bool) -> None:
        shared.append(layer.weight)
        with parametrize.cached() if own_block else contextlib.nullcontext():
            shared.append(layer.weight)
            await ended.wait()
            assert (layer.weight is shared[0]) is own_block
        assert layer.weight is not shared[0]

    with parametrize.cached():
        tasks = [asyncio.create_task(read(own_block)) for own_block in (False, True)]
        await asyncio.sleep(0)
        assert [weight is layer.weight for weight in shared] == [True] * 4
    ended.set()
    await asyncio.gather(*tasks)


def test_graphs() -> None:
    layer = nn.Linear(3, 2)
    graph = Graph(layer)
    x = flow.rand(4, 3)

    def same() -> None:
        np.testing.assert_allclose(graph(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)

    same()
    parametrize.register_parametrization(layer, "weight", Squared())
    same()
    with flow.no_grad():
        layer.parametrizations.weight.original.mul_(3)
    same()
    with parametrize.cached():
        same()
        assert not layer.weight._blob.storage.lazy
    parametrize.register_parametrization(layer, "weight", Squared())
    same()
    parametrize.remove_parametrizations(layer, "weight")
    same()


def test_a_graph_trains_the_original() -> None:
    class Train(nn.Graph):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module
            self.add_optimizer(flow.optim.SGD(module.parameters(), lr=0.1))

        def build(self, x: flow.Tensor) -> Any:
            loss = self.module(x).square().sum()
            loss.backward()
            return loss

    layers = [parametrizations.weight_norm(nn.Linear(3, 2).double()) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    graph, optimizer = Train(layers[0]), flow.optim.SGD(layers[1].parameters(), lr=0.1)
    x = flow.rand(4, 3, dtype=flow.float64)
    for _ in range(3):
        graph(x)
        optimizer.zero_grad()
        layers[1](x).square().sum().backward()
        optimizer.step()
    for key, value in layers[0].state_dict().items():
        np.testing.assert_allclose(value.numpy(), layers[1].state_dict()[key].numpy(), rtol=1e-9)


def test_transfer_shares() -> None:
    source, target = doubled(), nn.Linear(3, 2)
    assert parametrize.transfer_parametrizations_and_params(source, target) is target
    assert target.parametrizations.weight.original is source.parametrizations.weight.original
    assert target.weight.tolist() == source.weight.tolist()
    empty = nn.Module()
    parametrize.transfer_parametrizations_and_params(parametrizations.weight_norm(nn.Linear(3, 2)), empty, "weight")
    assert empty.weight.shape == (2, 3)
    plain = nn.ReLU()
    assert parametrize.transfer_parametrizations_and_params(nn.Linear(1, 1), plain) is plain


def test_transfer_keeps_the_value_of_the_source() -> None:
    source, target = parametrizations.orthogonal(nn.Linear(3, 3)), parametrizations.weight_norm(nn.Linear(3, 3))
    before = source.weight.tolist()
    parametrize.transfer_parametrizations_and_params(source, target)
    assert source.weight.tolist() == before
    assert target.weight.tolist() == before
    assert len(list(target.parameters())) == 2
    parametrize.transfer_parametrizations_and_params(parametrizations.orthogonal(nn.Linear(2, 4)), target)
    assert target.weight.shape == (4, 2)
    assert parametrize.is_parametrized(target, "weight")


def test_a_refused_parametrization_changes_nothing() -> None:
    layer: Any = nn.Linear(3, 2)
    weight = layer.weight
    values = weight.tolist()
    with pytest.raises(ValueError, match="Linear has no parameter, buffer or parametrized tensor 'kernel'"):
        parametrize.register_parametrization(layer, "kernel", Doubled())
    with pytest.raises(ValueError, match="pass unsafe=True"):
        parametrize.register_parametrization(layer, "weight", Reshaped())

    class Nothing(nn.Module):
        def forward(self, x: flow.Tensor) -> None:
            return None

    class Wrong(Doubled):
        def right_inverse(self, x: flow.Tensor) -> flow.Tensor:
            return x.double()

    class Neither(Doubled):
        def right_inverse(self, x: flow.Tensor) -> Any:
            return 5

    class Both(Added):
        def right_inverse(self, x: flow.Tensor) -> Any:
            return x, 5

    for kind, message in (
        (Nothing, "must return a tensor, not NoneType"),
        (Wrong, "expected a tensor of float32, as the original is, got float64"),
        (Neither, "expected a tensor or several, got int"),
        (Both, "got one that is a int"),
    ):
        with pytest.raises(ValueError, match=message):
            parametrize.register_parametrization(layer, "weight", kind())
    with pytest.raises(ValueError, match="at least one module"):
        parametrize.ParametrizationList([], weight)
    assert type(layer).__name__ == "Linear"
    assert layer.weight is weight
    assert weight.tolist() == values
    parametrize.register_parametrization(layer, "weight", Doubled())
    for second in (Reshaped(), Wrong(), Nothing()):
        with pytest.raises(ValueError, match=r"unsafe=True|must return a tensor"):
            parametrize.register_parametrization(layer, "weight", second)
    assert len(layer.parametrizations.weight) == 1
    with pytest.raises(TypeError, match="cannot assign int to the parametrized tensor 'weight'"):
        layer.weight = 5
    parametrize.register_parametrization(layer, "weight", Reshaped(), unsafe=True)
    assert layer.weight.shape == (6,)
    assert layer.parametrizations.weight.unsafe


def test_assigning_a_parameter() -> None:
    layer = doubled()
    layer.weight = nn.Parameter(flow.ones(2, 3))
    assert layer.parametrizations.weight.original.tolist() == [[0.5] * 3] * 2
    assert "weight" not in layer._parameters


# The three there are


@pytest.mark.parametrize("dim", [0, 1, None, -1])
def test_weight_norm(dim: int | None) -> None:
    torch = pytest.importorskip("torch")
    ours: Any = parametrizations.weight_norm(nn.Linear(4, 3), dim=dim)
    theirs = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3), dim=dim)
    assert repr(ours) == repr(theirs)
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    for lib, layer in ((flow, ours), (torch, theirs)):
        (layer(lib.tensor(x)) ** 2).sum().backward()
    for (name, mine), (wanted, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert (name, mine.grad is None) == (wanted, False)
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_state_dicts_of_the_older_weight_norm() -> None:
    old, new = nn.utils.weight_norm(nn.Linear(4, 3)), parametrizations.weight_norm(nn.Linear(4, 3))
    nn.Sequential(copy.deepcopy(new)).load_state_dict(nn.Sequential(old).state_dict())
    new.load_state_dict(old.state_dict())
    x = flow.rand(2, 4)
    np.testing.assert_allclose(new(x).detach().numpy(), old(x).detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "arguments", "shape"),
    [
        ("Linear", (4, 3), (2, 4)),
        ("Conv2d", (2, 3, 2), (1, 2, 4, 4)),
        ("ConvTranspose1d", (2, 3, 2), (1, 2, 4)),
    ],
)
def test_spectral_norm(kind: str, arguments: tuple[int, ...], shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    ours = parametrizations.spectral_norm(getattr(nn, kind)(*arguments).double(), n_power_iterations=2)
    theirs = torch.nn.utils.parametrizations.spectral_norm(
        getattr(torch.nn, kind)(*arguments).double(), n_power_iterations=2
    )
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    x = np.random.default_rng(0).normal(size=shape)
    for training in (True, True, False):
        ours.train(training), theirs.train(training)
        results = []
        for lib, layer in ((flow, ours), (torch, theirs)):
            layer.zero_grad()
            result = layer(lib.tensor(x))
            (result**2).sum().backward()
            results.append(result.detach().numpy())
        np.testing.assert_allclose(results[0], results[1], rtol=1e-8)
        for (name, mine), (wanted, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            assert name == wanted
            np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-7, atol=1e-10)
    for key, value in ours.state_dict().items():
        np.testing.assert_allclose(value.numpy(), theirs.state_dict()[key].numpy(), rtol=1e-8)


def test_spectral_norm_begins_near_the_largest_singular_value() -> None:
    layer = parametrizations.spectral_norm(nn.Linear(6, 4).double(), n_power_iterations=50)
    assert np.linalg.svd(layer.weight.detach().numpy())[1][0] == pytest.approx(1, rel=1e-3)
    parametrizations.spectral_norm(layer, "bias")
    assert np.linalg.norm(layer.bias.detach().numpy()) == pytest.approx(1)


@pytest.mark.parametrize("trivialization", [True, False])
@pytest.mark.parametrize("orthogonal_map", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (1, 3), (2, 4, 3)])
def test_orthogonal(shape: tuple[int, ...], orthogonal_map: str | None, trivialization: bool) -> None:
    torch = pytest.importorskip("torch")
    layers = []
    for lib in (flow, torch):
        layer = lib.nn.Module()
        layer.weight = lib.nn.Parameter(lib.rand(*shape, dtype=lib.float64))
        layers.append(
            lib.nn.utils.parametrizations.orthogonal(
                layer, orthogonal_map=orthogonal_map, use_trivialization=trivialization
            )
        )
    ours, theirs = layers
    with torch.no_grad():
        theirs.parametrizations.weight.original += 0.3 * torch.rand(*shape, dtype=torch.float64).tril(-1)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    found, expected = ours.weight, theirs.weight
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-9)
    values = np.random.default_rng(0).normal(size=shape)
    (found * flow.tensor(values)).sum().backward()
    (expected * torch.tensor(values)).sum().backward()
    np.testing.assert_allclose(
        ours.parametrizations.weight.original.grad.numpy(),
        theirs.parametrizations.weight.original.grad.numpy(),
        rtol=1e-6,
        atol=1e-9,
    )


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("settings", [{}, {"orthogonal_map": "householder", "use_trivialization": False}])
def test_an_orthogonal_weight_stays_and_can_be_assigned(shape: tuple[int, int], settings: dict[str, Any]) -> None:
    layer: Any = nn.Linear(shape[1], shape[0]).double()
    for assigned in (False, True):
        if not assigned:
            nn.init.orthogonal_(layer.weight)
            wanted = layer.weight.detach().numpy().copy()
            parametrizations.orthogonal(layer, **settings)
        else:
            wanted = nn.init.orthogonal_(flow.empty(shape, dtype=flow.float64)).numpy()
            layer.weight = flow.tensor(wanted)
        np.testing.assert_allclose(layer.weight.detach().numpy(), wanted, atol=1e-12)
    layer.weight = flow.eye(*shape, dtype=flow.float64)
    np.testing.assert_allclose(layer.weight.detach().numpy(), np.eye(*shape), atol=1e-12)
    with pytest.raises(ValueError, match="expected a matrix of shape"):
        layer.weight = flow.ones(2, 2, dtype=flow.float64)


def test_orthogonal_in_a_graph() -> None:
    layer = parametrizations.orthogonal(nn.Linear(3, 5))
    x = flow.rand(2, 3)
    np.testing.assert_allclose(Graph(layer)(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: p.weight_norm(nn.Linear(2, 2), "kernel"), ValueError, "Linear has no parameter or buffer 'kernel'"),
        (lambda p: p.weight_norm(nn.Linear(2, 2), dim=2), IndexError, "dim 2 is out of range"),
        (lambda p: p.spectral_norm(nn.Linear(2, 2), n_power_iterations=0), ValueError, "must be positive"),
        (lambda p: p.spectral_norm(nn.Linear(2, 2), dim=5), IndexError, "dim 5 is out of range"),
        (lambda p: p.orthogonal(nn.Linear(2, 2), "bias"), ValueError, "a matrix or a batch"),
        (lambda p: p.orthogonal(nn.Linear(2, 2), orthogonal_map="qr"), ValueError, "not 'qr'"),
    ],
)
def test_arguments_that_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(parametrizations)


def test_without_trivialization_some_maps_take_no_values() -> None:
    layer: Any = parametrizations.orthogonal(nn.Linear(3, 3), orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="by cayley takes no values"):
        layer.weight = flow.eye(3)


def test_an_orthogonal_weight_by_reflections_of_a_matrix_of_lower_rank() -> None:
    layer = nn.utils.parametrizations.orthogonal(
        nn.Linear(3, 3), orthogonal_map="householder", use_trivialization=False
    )
    layer.weight = flow.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])  # type: ignore[assignment]
    np.testing.assert_allclose((layer.weight.mT @ layer.weight).detach().numpy(), np.eye(3), atol=1e-6)


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder"])
def test_an_orthogonal_weight_of_zeros(orthogonal_map: str) -> None:
    layer = nn.Linear(2, 3)
    nn.init.zeros_(layer.weight)
    parametrizations.orthogonal(layer, orthogonal_map=orthogonal_map)
    np.testing.assert_allclose((layer.weight.mT @ layer.weight).detach().numpy(), np.eye(2), atol=1e-6)


def test_an_error_about_the_original_names_the_module_whose_right_inverse_runs_last() -> None:
    class Widening(nn.Module):
        def forward(self, x: flow.Tensor) -> flow.Tensor:
            return x.float()

        def right_inverse(self, x: flow.Tensor) -> flow.Tensor:
            return x.double()

    with pytest.raises(ValueError, match=r"Widening\.right_inverse: expected a tensor of float32"):
        nn.utils.parametrize.ParametrizationList([Widening(), nn.ReLU()], flow.ones(2))
