"""Pruning, against PyTorch's."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.nn.utils import prune

WEIGHT = np.random.default_rng(3).normal(size=(4, 6)).astype(np.float32)
SCORES = np.random.default_rng(4).normal(size=(4, 6)).astype(np.float32)
MASK = (np.arange(24).reshape(4, 6) % 5 != 0).astype(np.float32)


def layer_of(lib: Any) -> Any:
    layer = lib.nn.Linear(6, 4)
    layer.load_state_dict({"weight": lib.tensor(WEIGHT), "bias": lib.tensor(WEIGHT[:, 0])})
    return layer


def bad(value: Any) -> Any:
    """A value that type checkers would refuse."""
    return value


# Each is done to a layer in turn: a function of the library's `prune`, the library and the layer.
STEPS: dict[str, list[Callable[[Any, Any, Any], Any]]] = {
    "a part": [lambda p, lib, layer: p.l1_unstructured(layer, "weight", amount=0.3)],
    "a number": [lambda p, lib, layer: p.l1_unstructured(layer, "bias", amount=2)],
    "nothing": [lambda p, lib, layer: p.l1_unstructured(layer, "weight", amount=0)],
    "all": [lambda p, lib, layer: p.l1_unstructured(layer, "weight", amount=1.0)],
    "scores": [lambda p, lib, layer: p.l1_unstructured(layer, "weight", 0.3, importance_scores=lib.tensor(SCORES))],
    "twice": [lambda p, lib, layer: p.l1_unstructured(layer, "weight", amount=0.5)] * 2,
    "thrice": [lambda p, lib, layer: p.l1_unstructured(layer, "weight", amount=3)] * 3,
    "channels": [lambda p, lib, layer: p.ln_structured(layer, "weight", amount=2, n=2, dim=0)],
    "channels by the last": [lambda p, lib, layer: p.ln_structured(layer, "weight", 0.5, n=1, dim=-1)],
    "channels by the largest": [lambda p, lib, layer: p.ln_structured(layer, "weight", 2, n=float("inf"), dim=1)],
    "channels by scores": [
        lambda p, lib, layer: p.ln_structured(layer, "weight", 2, 2, 0, importance_scores=lib.tensor(SCORES))
    ],
    "channels twice": [
        lambda p, lib, layer: p.ln_structured(layer, "weight", amount=1, n=2, dim=0),
        lambda p, lib, layer: p.ln_structured(layer, "weight", amount=2, n=2, dim=1),
        lambda p, lib, layer: p.ln_structured(layer, "weight", amount=1, n=2, dim=0),
    ],
    "channels, then elements": [
        lambda p, lib, layer: p.ln_structured(layer, "weight", amount=1, n=2, dim=0),
        lambda p, lib, layer: p.l1_unstructured(layer, "weight", amount=0.5),
    ],
    "a mask": [lambda p, lib, layer: p.custom_from_mask(layer, "weight", lib.tensor(MASK))],
    "a mask of bools, then elements": [
        lambda p, lib, layer: p.custom_from_mask(layer, "weight", lib.tensor(MASK != 0)),
        lambda p, lib, layer: p.l1_unstructured(layer, "weight", amount=4),
    ],
    "identity": [lambda p, lib, layer: p.identity(layer, "weight")],
    "both": [
        lambda p, lib, layer: p.global_unstructured(
            [(layer, "weight"), (layer, "bias")], pruning_method=p.L1Unstructured, amount=0.4
        )
    ],
    "both twice": [
        lambda p, lib, layer: p.l1_unstructured(layer, "bias", amount=1),
        lambda p, lib, layer: p.global_unstructured([(layer, "weight"), (layer, "bias")], p.L1Unstructured, amount=7),
        lambda p, lib, layer: (
            p.global_unstructured(
                ((layer, name) for name in ("weight", "bias")),
                p.L1Unstructured,
                {(layer, "bias"): layer.bias * 9},
                amount=5,
            )
            if lib is flow
            else p.global_unstructured(
                [(layer, "weight"), (layer, "bias")], p.L1Unstructured, {(layer, "bias"): layer.bias * 9}, amount=5
            )
        ),
    ],
    "removed": [
        lambda p, lib, layer: p.l1_unstructured(layer, "weight", amount=0.5),
        lambda p, lib, layer: p.remove(layer, "weight"),
        lambda p, lib, layer: p.l1_unstructured(layer, "bias", amount=0.5),
    ],
}


@pytest.mark.parametrize("name", STEPS)
def test_state_results_and_gradients_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    found = []
    for lib in (flow, torch):
        layer, library = layer_of(lib), import_module(f"{lib.__name__}.nn.utils.prune")
        for step in STEPS[name]:
            step(library, lib, layer)
        state = {key: np.array(value.numpy()) for key, value in layer.state_dict().items()}
        result = layer(lib.tensor(x))
        (result**2).sum().backward()
        values = [result.detach().numpy(), layer.weight.detach().numpy(), layer.bias.detach().numpy()]
        gradients = {key: tensor.grad.numpy() for key, tensor in layer.named_parameters()}
        pruned = library.is_pruned(layer)
        found.append((state, values, gradients, pruned, library.is_pruned(lib.nn.Sequential(layer))))
    (state, values, gradients, *pruned), (wanted, expected, others, *truth) = found
    assert pruned == truth
    assert list(state) == list(wanted)
    for key, value in state.items():
        np.testing.assert_array_equal(value, wanted[key], err_msg=key)
    for one, other in zip(values, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert list(gradients) == list(others)
    for key, value in gradients.items():
        np.testing.assert_allclose(value, others[key], rtol=1e-4, atol=1e-5, err_msg=key)


def test_random_methods_prune_the_asked_number() -> None:
    layer = nn.Linear(6, 4)
    assert prune.random_unstructured(layer, "weight", amount=0.25) is layer
    assert (layer.weight_mask == 0).sum().item() == 6
    prune.random_unstructured(layer, "weight", amount=0.5)
    assert (layer.weight_mask == 0).sum().item() == 15
    layer = nn.Linear(6, 4)
    prune.random_structured(layer, "weight", amount=2, dim=1)
    assert sorted(layer.weight_mask.sum(0).tolist()) == [0, 0, 4, 4, 4, 4]
    prune.random_structured(layer, "weight", amount=1, dim=1)
    assert sorted(layer.weight_mask.sum(0).tolist()) == [0, 0, 0, 4, 4, 4]
    masks = {str(prune.random_unstructured(nn.Linear(6, 4), "weight", 12).weight_mask.tolist()) for _ in range(4)}
    assert len(masks) > 1


def test_a_method_of_the_users_own() -> None:
    class EveryOther(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t: flow.Tensor, default_mask: flow.Tensor) -> flow.Tensor:
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    layer = nn.Linear(4, 1)
    method = EveryOther.apply(layer, "weight")
    assert isinstance(method, EveryOther)
    assert layer.weight_mask.tolist() == [[0, 1, 0, 1]]
    container = EveryOther.apply(layer, "weight")
    assert isinstance(container, prune.PruningContainer)
    assert list(container) == [method, container[1]]
    assert len(container) == 2
    assert layer.weight_mask.tolist() == [[0, 0, 0, 1]]
    assert EveryOther.apply(layer, "weight") is container
    assert len(layer._forward_pre_hooks) == 1
    with pytest.raises(TypeError, match="expected a BasePruningMethod, got int"):
        container.add_pruning_method(3)  # type: ignore[arg-type]
    other = EveryOther.apply(layer, "bias")
    with pytest.raises(ValueError, match="prunes 'weight', the method 'bias'"):
        container.add_pruning_method(other)
    with pytest.raises(ValueError, match="prunes 'weight', the method 'bias'"):
        prune.PruningContainer(method, other)


def test_a_container_takes_pruning_methods_only() -> None:
    method = prune.Identity.apply(nn.Linear(2, 2), "weight")
    for given in ((3,), (method, 3)):
        with pytest.raises(TypeError, match="expected a BasePruningMethod, got int"):
            prune.PruningContainer(*given)
    with pytest.raises(ValueError, match=r"this Identity has pruned no tensor yet; .* Identity\.apply\(module, name"):
        prune.PruningContainer(prune.Identity())
    container = prune.PruningContainer()
    container.add_pruning_method(method)
    assert list(container) == [method]
    with pytest.raises(ValueError, match="prunes 'weight', the method 'bias'"):
        container.add_pruning_method(prune.Identity.apply(nn.Linear(2, 2), "bias"))


def test_a_tensor_that_belongs_to_no_module() -> None:
    x = flow.tensor([1.0, -3.0, 2.0])
    method = prune.L1Unstructured(amount=1)
    assert method.prune(x).tolist() == [0, -3, 2]
    assert method.prune(x, importance_scores=flow.tensor([5.0, 1.0, 2.0])).tolist() == [1, 0, 2]
    assert method.prune(x, default_mask=flow.tensor([1.0, 1.0, 0.0])).tolist() == [0, -3, 0]
    assert x.tolist() == [1, -3, 2]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_copies(copied: Any) -> None:
    layer = prune.l1_unstructured(layer_of(flow), "weight", 0.5)
    again = copied(layer)
    with flow.no_grad():
        again.weight_orig.zero_()
    x = flow.ones(1, 6)
    assert again(x).tolist() != layer(x).tolist()
    prune.remove(again, "weight")
    assert prune.is_pruned(layer)
    assert not prune.is_pruned(again)


def test_graphs_and_pruning_after_them() -> None:
    class Graph(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def build(self, x: flow.Tensor) -> Any:
            return self.layer(x)

    layer = layer_of(flow)
    graph = Graph()
    x = flow.rand(2, 6)
    for step in range(4):
        np.testing.assert_allclose(graph(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)
        graph(x)
        if step < 2:
            prune.l1_unstructured(layer, "weight", amount=0.5)
        elif step == 2:
            prune.remove(layer, "weight")
    assert (layer.weight == 0).sum().item() == 18


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda layer: prune.l1_unstructured(layer, "kernel", 1), ValueError, "Linear has no parameter 'kernel'"),
        (lambda layer: prune.l1_unstructured(layer, "weight", 25), ValueError, "cannot prune 25 of 24"),
        (lambda layer: prune.l1_unstructured(layer, "weight", -1), ValueError, "got -1"),
        (lambda layer: prune.l1_unstructured(layer, "weight", 1.5), ValueError, "got 1.5"),
        (lambda layer: prune.l1_unstructured(layer, "weight", bad("1")), TypeError, "not '1'"),
        (lambda layer: prune.l1_unstructured(layer, "weight", 1, flow.ones(2)), ValueError, "importance_scores"),
        (lambda layer: prune.ln_structured(layer, "bias", 1, 2, 0), ValueError, "2 or more dimensions"),
        (lambda layer: prune.ln_structured(layer, "weight", 1, 2, 2), IndexError, "dim 2 is out of range"),
        (lambda layer: prune.custom_from_mask(layer, "weight", flow.ones(2)), ValueError, r"a mask of shape \[2\]"),
        (lambda layer: prune.remove(layer, "weight"), ValueError, "'weight' of Linear is not pruned"),
        (lambda layer: prune.global_unstructured(bad(5), prune.L1Unstructured, amount=1), TypeError, "got int"),
        (
            lambda layer: prune.global_unstructured([(layer, "weight")], prune.RandomStructured, amount=1),
            TypeError,
            "RandomStructured is structured",
        ),
        (
            lambda layer: prune.global_unstructured([(layer, "weight")], prune.L1Unstructured, bad([]), amount=1),
            TypeError,
            "must be a dict",
        ),
        (
            lambda layer: prune.global_unstructured([(layer, "kernel")], prune.L1Unstructured, amount=1),
            ValueError,
            "no parameter 'kernel'",
        ),
    ],
)
def test_a_refused_call_changes_nothing(act: Any, error: type[Exception], message: str) -> None:
    layer = layer_of(flow)
    weight = layer.weight
    with pytest.raises(error, match=message):
        act(layer)
    assert list(layer.state_dict()) == ["weight", "bias"]
    assert layer.weight is weight
    assert not prune.is_pruned(layer)


def test_a_refused_call_keeps_the_mask() -> None:
    layer = prune.l1_unstructured(layer_of(flow), "weight", 20)
    mask = layer.weight_mask.tolist()
    with pytest.raises(ValueError, match="cannot prune 5 of 4"):
        prune.l1_unstructured(layer, "weight", 5)
    assert layer.weight_mask.tolist() == mask
    assert len(layer._forward_pre_hooks) == 1
    prune.l1_unstructured(layer, "weight", 4)
    assert layer.weight_mask.abs().sum().item() == 0
