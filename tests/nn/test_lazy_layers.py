"""Layers that get their shapes from their first input."""

from __future__ import annotations

import copy
import pickle
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn

RANKED = [(kind, rank) for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm") for rank in (1, 2, 3)]


@pytest.mark.parametrize(("kind", "rank"), RANKED)
def test_layers_become_those_of_pytorch(kind: str, rank: int) -> None:
    torch = pytest.importorskip("torch")
    name = f"{kind}{rank}d"
    arguments: tuple[Any, ...] = (4, 2, 2) if kind.startswith("Conv") else ()
    keywords = {"groups": 2, "bias": False} if kind.startswith("Conv") else {"momentum": 0.3}
    values = np.random.default_rng(0).normal(size=(2, 6, *[4] * rank)).astype(np.float32)
    ours = getattr(nn, f"Lazy{name}")(*arguments, **keywords)
    theirs = getattr(torch.nn, f"Lazy{name}")(*arguments, **keywords)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    expected = theirs(torch.tensor(values))
    if kind.startswith("Conv"):
        ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
        assert ours.has_uninitialized_params() is False
    found = ours(flow.tensor(values))
    assert type(ours) is getattr(nn, name)
    assert repr(ours) == repr(theirs)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert {key: list(entry.shape) for key, entry in ours.state_dict().items()} == {
        key: list(entry.shape) for key, entry in theirs.state_dict().items()
    }


def test_parameters_stay_the_same_objects() -> None:
    layer = nn.LazyLinear(3)
    weight, optimizer = layer.weight, flow.optim.SGD(layer.parameters(), lr=0.5)
    assert isinstance(weight, nn.UninitializedParameter)
    assert isinstance(weight, nn.Parameter)
    layer.double()
    layer(flow.ones(2, 7, dtype=flow.float64)).sum().backward()
    assert layer.weight is weight
    assert type(weight) is nn.Parameter
    assert (weight.dtype, weight.shape) == (flow.float64, (3, 7))
    before = weight.detach().clone()
    optimizer.step()
    np.testing.assert_allclose(weight.detach().numpy(), before.numpy() - 1)
    assert 0 < before.abs().max().item() < 7**-0.5


def test_moves_and_casts_reach_uninitialized_members() -> None:
    layer = nn.LazyBatchNorm1d().to_empty(device=flow.ones(1).device).requires_grad_(False).to(flow.float64)
    assert [repr(parameter) for parameter in layer.parameters()] == ["<UninitializedParameter>"] * 2
    assert layer.has_uninitialized_params()
    layer(flow.ones(2, 3, dtype=flow.float64))
    assert not layer.weight.requires_grad
    assert type(layer.running_mean) is nn.Buffer
    assert {tensor.dtype for tensor in (layer.weight, layer.running_mean)} == {flow.float64}


@pytest.mark.parametrize(
    "moved",
    [
        lambda layer: layer.to("meta"),
        lambda layer: layer.to_empty(device="meta"),
        lambda layer: layer.to_empty(device="meta").to_empty(device=flow.ones(1).device),
    ],
)
def test_lazy_layers_move_to_the_meta_device_and_back(moved: Any) -> None:
    layer = moved(nn.LazyBatchNorm1d(dtype=flow.float64))
    assert layer.has_uninitialized_params()
    x = flow.ones(2, 3, dtype=flow.float64, device=layer.weight.device)
    assert layer(x).shape == (2, 3)
    assert {(tensor.device, tensor.dtype) for tensor in layer.parameters()} == {(x.device, x.dtype)}
    assert nn.UninitializedParameter().to("meta").device == flow.device("meta")


def test_reading_a_missing_shape_raises() -> None:
    layer = nn.LazyBatchNorm1d()
    assert repr(layer.weight) == "<UninitializedParameter>"
    for tensor in (layer.weight, layer.running_mean):
        with pytest.raises(RuntimeError, match="there is no shape before its module has seen an input"):
            tensor.shape  # noqa: B018
    with pytest.raises(ValueError, match="buffers are not trained"):
        nn.UninitializedBuffer(True)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_lazy_too(copied: Any) -> None:
    net = nn.Sequential(nn.LazyLinear(3, dtype=flow.float64), nn.LazyBatchNorm1d(dtype=flow.float64))
    again = copied(net)
    assert again[0].weight is not net[0].weight
    net(flow.ones(2, 5, dtype=flow.float64))
    assert again[0].has_uninitialized_params()
    assert again[1].has_uninitialized_params()
    assert again(flow.ones(2, 4, dtype=flow.float64)).shape == (2, 3)
    assert (again[0].in_features, net[0].in_features) == (4, 5)


def test_state_dicts_between_lazy_and_other_layers() -> None:
    full, lazy = nn.Linear(5, 3), nn.LazyLinear(3)
    with pytest.raises(RuntimeError, match="'weight': the given one has no shape yet"):
        full.load_state_dict(lazy.state_dict())
    nn.LazyLinear(3).load_state_dict(lazy.state_dict())
    with pytest.raises(RuntimeError, match="missing keys: 'bias'"):
        lazy.load_state_dict({"weight": full.weight})
    assert lazy.has_uninitialized_params()
    lazy.load_state_dict(full.state_dict())
    x = flow.rand(2, 5)
    np.testing.assert_array_equal(lazy(x).detach().numpy(), full(x).detach().numpy())
    assert repr(lazy) == repr(full)


@pytest.mark.parametrize(
    ("kind", "arguments", "shape"),
    [
        ("Linear", (3,), (2, 6)),
        ("Conv1d", (4, 2), (2, 6, 5)),
        ("ConvTranspose2d", (4, 2), (2, 6, 3, 3)),
        ("BatchNorm1d", (), (2, 6)),
        ("InstanceNorm2d", (1e-5, 0.1, True, True), (2, 6, 3, 3)),
    ],
)
def test_members_that_are_loaded_keep_their_values(
    kind: str, arguments: tuple[Any, ...], shape: tuple[int, ...]
) -> None:
    full = getattr(nn, kind)(6, *arguments).state_dict()
    for name in full:
        layer = getattr(nn, f"Lazy{kind}")(*arguments)
        layer.load_state_dict({name: flow.full_like(full[name], 2)}, strict=False)
        layer.eval()(flow.ones(*shape))
        found = layer.state_dict()
        assert (found[name] == 2).all()
        assert [(key, value.shape) for key, value in found.items()] == [(key, full[key].shape) for key in full]
        for other in found.keys() & {"running_mean", "running_var"} - {name}:
            assert (found[other] == (other == "running_var")).all()


@pytest.mark.parametrize(
    ("lazy", "loaded", "shape"),
    [
        (lambda: nn.LazyLinear(2), lambda: nn.Linear(3, 2), (1, 4)),
        (lambda: nn.LazyConv1d(2, 2), lambda: nn.Conv1d(3, 2, 2), (1, 4, 5)),
        (lambda: nn.LazyBatchNorm1d(), lambda: nn.BatchNorm1d(3), (2, 4)),
    ],
)
def test_an_input_that_does_not_fit_a_loaded_weight(lazy: Any, loaded: Any, shape: tuple[int, ...]) -> None:
    layer = lazy()
    layer.load_state_dict({"weight": loaded().weight.detach()}, strict=False)
    with pytest.raises((ValueError, RuntimeError)):
        layer(flow.ones(*shape))


def test_a_graph_has_the_parameters_as_variables() -> None:
    class Graph(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3))

        def build(self, x: flow.Tensor) -> Any:
            return self.net(x)

    graph = Graph()
    x = flow.rand(2, 1, 5, 5)
    graph.net.origin.eval()
    first = graph(x).detach().numpy()
    np.testing.assert_allclose(first, graph.net.origin(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert type(graph.net.origin[0]) is nn.Conv2d
    with flow.no_grad():
        graph.net.origin[3].weight.zero_()
    assert not np.array_equal(graph(x).detach().numpy(), first)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (nn.LazyConv2d(2, 3), (2, 3), "expected 3 or 4 dimensions"),
        (nn.LazyConv1d(4, 3, groups=2), (1, 5, 8), "5 channels"),
        (nn.LazyBatchNorm1d(), (3,), "a dimension of channels"),
        (nn.LazyInstanceNorm2d(), (3, 3), "expected 3 or 4 dimensions"),
    ],
)
def test_an_input_that_does_not_fit_leaves_the_layer_lazy(layer: Any, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer(flow.ones(shape))
    assert type(layer).__name__.startswith("Lazy")
    assert "0," in repr(layer)
    with pytest.raises(ValueError, match="cannot be split into 2 groups"):
        nn.LazyConv1d(3, 1, groups=2)


@pytest.mark.parametrize(
    "kind",
    [
        nn.LazyLinear,
        *[partial(getattr(nn, f"LazyConv{rank}d"), kernel_size=2) for rank in (1, 2, 3)],
        *[partial(getattr(nn, f"LazyConvTranspose{rank}d"), kernel_size=2) for rank in (1, 2, 3)],
    ],
)
def test_the_size_of_the_output_is_checked_before_the_first_call(kind: Any) -> None:
    for size in (2.5, (2, 3)):
        with pytest.raises(TypeError, match=rf"Lazy\w+: sizes are integers, not {re.escape(repr(size))}"):
            kind(size)
    with pytest.raises(ValueError, match=r"Lazy\w+: sizes cannot be negative, got .*-2"):
        kind(-2)


def test_an_instance_without_a_batch() -> None:
    layer = nn.LazyInstanceNorm1d(affine=True)
    layer(flow.rand(3, 8))
    assert layer.num_features == 3


def test_a_lazy_module_of_the_users_own() -> None:
    class Scale(nn.modules.lazy.LazyModuleMixin, nn.Module):  # type: ignore[misc]
        def __init__(self, forgets: bool = False) -> None:
            super().__init__()
            self.weight = nn.UninitializedParameter()
            self.forgets = forgets

        def initialize_parameters(self, x: flow.Tensor) -> None:
            if self.has_uninitialized_params() and not self.forgets:
                self.weight.materialize(x.shape[-1:])
                nn.init.ones_(self.weight)

        def forward(self, x: flow.Tensor) -> flow.Tensor:
            return x * self.weight

    scale = Scale()
    assert scale(flow.ones(2, 3)).tolist() == [[1] * 3] * 2
    assert type(scale) is Scale
    with pytest.raises(RuntimeError, match="without a shape"):
        Scale(forgets=True)(flow.ones(2))


def test_a_linear_layer_of_an_input_without_features_or_dimensions() -> None:
    layer = nn.LazyLinear(300)
    assert layer(flow.ones(2, 0)).tolist() == [[0.0] * 300] * 2
    with pytest.raises(ValueError, match="at least 1 dimension"):
        nn.LazyLinear(3)(flow.tensor(1.0))
