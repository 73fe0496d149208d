"""Weights computed before every call, against PyTorch's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.nn import utils


def pair_of_layers(torch: Any, kind: str, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    torch.manual_seed(0)
    ours = getattr(nn, kind)(*arguments).double()
    theirs = getattr(torch.nn, kind)(*arguments).double()
    ours.load_state_dict({key: flow.tensor(value.numpy()) for key, value in theirs.state_dict().items()})
    return ours, theirs


def compare(torch: Any, ours: Any, theirs: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    for layer in (ours, theirs):
        layer.zero_grad()
    result, expected = ours(flow.tensor(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-9)
    (result * result).sum().backward()
    (expected * expected).sum().backward()
    for (name, mine), (_, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-7, atol=1e-10, err_msg=name)
    for (name, buffer), (_, wanted) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
        np.testing.assert_allclose(buffer.numpy(), wanted.numpy(), rtol=1e-9, err_msg=name)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("dim", [0, 1, -1, None])
@pytest.mark.parametrize(
    ("kind", "arguments", "shape"), [("Linear", (4, 3), (2, 4)), ("Conv2d", (2, 3, 2), (1, 2, 4, 4))]
)
def test_weight_norm(kind: str, arguments: tuple[Any, ...], shape: tuple[int, ...], dim: int | None) -> None:
    torch = pytest.importorskip("torch")
    if dim == -1 and kind == "Conv2d":
        dim = 2
    ours, theirs = pair_of_layers(torch, kind, arguments)
    plain = ours.weight.tolist()
    assert utils.weight_norm(ours, dim=dim) is ours
    torch.nn.utils.weight_norm(theirs, dim=len(theirs.weight.shape) - 1 if dim == -1 else dim)
    np.testing.assert_allclose(ours.weight.tolist(), plain, rtol=1e-12)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    compare(torch, ours, theirs, shape)
    for layer in (ours, theirs):
        with flow.no_grad(), torch.no_grad():
            layer.weight_g.mul_(2)
    compare(torch, ours, theirs, shape)
    utils.remove_weight_norm(ours)
    torch.nn.utils.remove_weight_norm(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    compare(torch, ours, theirs, shape)
    assert not ours._forward_pre_hooks


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("kind", "arguments", "shape"), [("Linear", (4, 3), (2, 4)), ("Conv2d", (2, 3, 2), (1, 2, 4, 4))]
)
def test_spectral_norm(kind: str, arguments: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = pair_of_layers(torch, kind, arguments)
    utils.spectral_norm(ours, n_power_iterations=2)
    torch.nn.utils.spectral_norm(theirs, n_power_iterations=2)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({key: flow.tensor(value.numpy()) for key, value in theirs.state_dict().items()})
    for training in (True, True, False):
        ours.train(training)
        theirs.train(training)
        compare(torch, ours, theirs, shape)
    utils.remove_spectral_norm(ours)
    assert list(ours._parameters) == ["bias", "weight"]
    assert not ours._buffers
    ours.train()
    for _ in range(3):
        utils.spectral_norm(ours, n_power_iterations=200)
        ours(flow.tensor(np.zeros(shape)))
        utils.remove_spectral_norm(ours)
    largest = np.linalg.svd(ours.weight.detach().numpy().reshape(3, -1))[1][0]
    assert largest == pytest.approx(1, rel=1e-6)


def test_spectral_norm_of_a_class_derived_from_transposed_convolutions() -> None:
    class Up(nn.ConvTranspose1d):
        pass

    assert utils.spectral_norm(Up(3, 5, 2)).weight_u.shape == (5,)


def test_two_calls_before_the_backward_pass() -> None:
    layer = utils.spectral_norm(nn.Linear(3, 2))
    x = flow.ones(1, 3)
    first, second = layer(x).sum(), layer(x).sum()
    (first + second).backward()
    assert layer.weight_orig.grad is not None


@pytest.mark.parametrize("kind", ["weight", "spectral"])
def test_arguments_that_are_refused(kind: str) -> None:
    add, remove = getattr(utils, f"{kind}_norm"), getattr(utils, f"remove_{kind}_norm")
    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="Linear has no parameter 'kernel'"):
        add(layer, "kernel")
    with pytest.raises(ValueError, match=f"has no {kind} norm"):
        remove(layer)
    add(layer)
    with pytest.raises(RuntimeError, match="is normalised already"):
        add(layer)
    add(layer, "bias", dim=0)
    remove(layer, "bias")
    assert list(layer._parameters)[-1] == "bias"
    layer = nn.Linear(2, 2)
    layer.scalar = nn.Parameter(flow.ones(()))
    layer.whole = nn.Parameter(flow.ones(2, 2, dtype=flow.int64), requires_grad=False)
    before = [name for name, _ in layer.named_parameters()]
    errors: Any
    for name, dim, errors, match in (
        ("weight", 2, IndexError, "dim 2 is out of range"),
        ("weight", -3, IndexError, "dim -3 is out of range"),
        ("scalar", 0, IndexError, "dim 0 is out of range"),
        ("whole", 0, (TypeError, ValueError, RuntimeError), "int64"),
    ):
        with pytest.raises(errors, match=match):
            add(layer, name, dim=dim)
        assert [name for name, _ in layer.named_parameters()] == before
    with pytest.raises(ValueError, match="must be positive"):
        utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)


def test_a_normalised_layer_can_be_copied_before_it_is_called() -> None:
    layer = utils.weight_norm(nn.Linear(2, 2))
    again = copy.deepcopy(layer)
    with flow.no_grad():
        again.weight_g.mul_(3)
    x = flow.ones(1, 2)
    assert again(x).tolist() != layer(x).tolist()


@pytest.mark.parametrize("function", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_a_module_with_an_attribute_of_a_new_name_is_not_changed(function: Any) -> None:
    layer = nn.Linear(4, 3)
    layer.weight_v = 3
    before = [name for name, _ in layer.named_parameters()]
    with pytest.raises(KeyError, match="Linear has an attribute 'weight_v' already"):
        function(layer)
    assert [name for name, _ in layer.named_parameters()] == before
    assert layer(flow.ones(2, 4)).shape == (2, 3)
