"""Hooks around calls, state dicts and gradients, extra state, and further methods of PyTorch's `Module`."""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn


class Sum(nn.Module):
    def forward(self, x: flow.Tensor, *, plus: float = 0.0) -> flow.Tensor:
        if plus < 0:
            raise ValueError("plus is negative")
        return x + plus


def test_hooks_with_keyword_arguments() -> None:
    module = Sum()
    seen: list[Any] = []
    module.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {"plus": kwargs["plus"] * 2}), with_kwargs=True
    )
    module.register_forward_hook(
        lambda module, args, kwargs, result: seen.append((kwargs, result.item())), with_kwargs=True
    )
    assert module(flow.tensor(1.0), plus=2.0).item() == 5
    assert seen == [({"plus": 4.0}, 5.0)]
    module.register_forward_pre_hook(lambda module, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"must return None or the pair \(args, kwargs\)"):
        module(flow.tensor(1.0), plus=2.0)


def test_prepended_hooks_come_first() -> None:
    module = nn.Linear(1, 1)
    order: list[str] = []

    def note(name: str) -> Any:
        return lambda *_: order.append(name)

    for register, name in (
        (module.register_forward_pre_hook, "before"),
        (module.register_forward_hook, "after"),
        (module.register_full_backward_pre_hook, "results"),
        (module.register_full_backward_hook, "arguments"),
    ):
        register(note(f"{name} 2"))
        register(note(f"{name} 3"))
        register(note(f"{name} 1"), prepend=True)
    module(flow.ones(1, 1, requires_grad=True)).sum().backward()
    wanted = [f"{name} {place}" for name in ("before", "after", "results", "arguments") for place in (1, 2, 3)]
    assert order == wanted


def test_a_removed_hook_is_not_called() -> None:
    module = Sum()
    calls: list[int] = []
    handle = module.register_forward_hook(lambda *_: calls.append(1), prepend=True, with_kwargs=True)
    handle.remove()
    module(flow.ones(1))
    assert calls == []


def test_a_hook_that_is_always_called() -> None:
    module = Sum()
    seen: list[Any] = []
    module.register_forward_hook(lambda module, args, result: seen.append(result), always_call=True)
    module.register_forward_hook(lambda module, args, result: seen.append("only after success"))
    with pytest.raises(ValueError, match="plus is negative"):
        module(flow.ones(1), plus=-1.0)
    assert seen == [None]
    module(flow.ones(1))
    assert len(seen) == 3


def test_an_always_called_hook_does_not_hide_the_error() -> None:
    module = Sum()

    def fail(*_: Any) -> None:
        raise KeyError("hook")

    module.register_forward_hook(fail, always_call=True)
    with pytest.raises(ValueError, match="plus is negative") as caught:
        module(flow.ones(1), plus=-1.0)
    assert "raised KeyError: 'hook'" in caught.value.__notes__[0]
    with pytest.raises(KeyError):  # its own error, once, where there is no other
        module(flow.ones(1))


def test_a_backward_pre_hook_changes_the_gradient() -> None:
    module = nn.Linear(2, 2, bias=False)
    seen: list[Any] = []
    module.register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0] * 3,))
    module.register_full_backward_hook(lambda module, given, got: seen.append(got[0].tolist()))
    x = flow.ones(1, 2, requires_grad=True)
    module(x).sum().backward()
    assert seen == [[[3.0, 3.0]]]
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy()[0], 3 * module.weight.detach().numpy().sum(0), rtol=1e-6)
    module.register_full_backward_pre_hook(lambda module, grad_output: (None, None))
    with pytest.raises(RuntimeError, match="returned 2 gradients for 1 results"):
        module(x).sum().backward()


class Made(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize("kind", ["list", "dict", "nested", "named", "tuple"])
def test_backward_hooks_get_the_gradients_of_results_that_pytorch_watches(kind: str) -> None:
    torch = pytest.importorskip("torch")
    make: Any = {
        "list": lambda x, y: [x, y],
        "dict": lambda x, y: {"x": x, "y": y},
        "nested": lambda x, y: (x, [y]),
        "named": Made,
        "tuple": lambda x, y: (x, y),
    }[kind]
    found = []
    for lib in (flow, torch):

        class Both(lib.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                return make(x * 2, x * 3)

        module: Any = Both()
        seen: list[Any] = []

        def note(*given: Any, seen: list[Any] = seen) -> None:
            seen.append([[None if x is None else x.tolist() for x in gradients] for gradients in given[1:]])

        module.register_full_backward_pre_hook(note)
        module.register_full_backward_hook(note)
        x = lib.ones(1, requires_grad=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = module(x)
        told = [str(warning.message) for warning in caught]
        leaves = list(result.values() if isinstance(result, dict) else result)
        second = leaves[1][0] if kind == "nested" else leaves[1]
        second.sum().backward(retain_graph=True)
        first_gradient = x.grad.item()
        (leaves[0] + second).sum().backward()
        found.append((seen, type(result), len(told), first_gradient, x.grad.item()))
    assert found[0] == found[1]
    assert found[0][2] == (kind in ("list", "dict"))


# State dicts


class Counted(nn.Module):
    """Keeps something in the state dict that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(flow.ones(1))
        self.count = 0

    def get_extra_state(self) -> Any:
        return {"count": self.count}

    def set_extra_state(self, state: Any) -> None:
        self.count = state["count"]


def test_extra_state_is_kept_and_given_back() -> None:
    net = nn.Sequential(Counted(), nn.Linear(1, 1))
    net[0].count = 7
    kept = net.state_dict()
    assert list(kept) == ["0.weight", "0._extra_state", "1.weight", "1.bias"]
    other = nn.Sequential(Counted(), nn.Linear(1, 1))
    assert other.load_state_dict(kept) == ([], [])
    assert other[0].count == 7
    del kept["0._extra_state"]
    with pytest.raises(RuntimeError, match=r"missing keys: '0\._extra_state'"):
        other.load_state_dict(kept)
    with pytest.raises(RuntimeError, match="unexpected keys: '_extra_state'"):
        nn.Linear(1, 1).load_state_dict({**nn.Linear(1, 1).state_dict(), "_extra_state": 1})
    shared = Counted()
    twice = nn.ModuleList([shared, shared])
    twice.load_state_dict(twice.state_dict())
    with pytest.raises(NotImplementedError, match="define get_extra_state"):
        nn.Linear(1, 1).get_extra_state()
    with pytest.raises(NotImplementedError, match="define set_extra_state"):
        nn.Linear(1, 1).set_extra_state(1)


def test_hooks_around_state_dict() -> None:
    net = nn.Sequential(nn.Linear(1, 1))
    calls: list[Any] = []
    net[0].register_state_dict_pre_hook(lambda module, prefix, keep_vars: calls.append((prefix, keep_vars)))
    handle = net[0].register_state_dict_post_hook(
        lambda module, found, prefix, metadata: found.update({f"{prefix}extra": 5})
    )
    assert list(net.state_dict(keep_vars=True)) == ["0.weight", "0.bias", "0.extra"]
    assert calls == [("0.", True)]
    handle.remove()
    assert "0.extra" not in net.state_dict()


def test_a_hook_before_loading_may_rename() -> None:
    net = nn.Sequential(nn.Linear(1, 1))

    def rename(module: Any, given: dict[str, Any], prefix: str, *rest: Any) -> None:
        given[f"{prefix}weight"] = given.pop(f"{prefix}kernel")

    net[0].register_load_state_dict_pre_hook(rename)
    old = {"0.kernel": flow.full((1, 1), 4.0), "0.bias": flow.zeros(1)}
    net.load_state_dict(old)
    assert net[0].weight.item() == 4
    assert list(old) == ["0.kernel", "0.bias"]  # the dict that was passed is unchanged


def test_a_hook_before_loading_may_object() -> None:
    layer = nn.Linear(1, 1)
    layer.register_load_state_dict_pre_hook(lambda *given: given[-1].append("too old"))
    before = layer.weight.item()
    with pytest.raises(RuntimeError, match="nothing was loaded:\n    too old"):
        layer.load_state_dict({"weight": flow.full((1, 1), before + 1), "bias": flow.zeros(1)})
    assert layer.weight.item() == before


def test_a_hook_after_loading_may_forgive() -> None:
    layer = nn.Linear(1, 1)
    seen: list[Any] = []

    def forgive(module: Any, keys: Any) -> None:
        seen.append((list(keys.missing_keys), list(keys.unexpected_keys)))
        keys.missing_keys.clear()

    layer.register_load_state_dict_post_hook(forgive)
    assert layer.load_state_dict({"weight": flow.full((1, 1), 4.0)}) == ([], [])
    assert layer.weight.item() == 4
    assert seen == [(["bias"], [])]
    with pytest.raises(RuntimeError, match="only the rest was loaded:\n    unexpected keys: 'other'"):
        layer.load_state_dict({"weight": flow.full((1, 1), 5.0), "other": flow.zeros(1)})


# Further methods


def test_replacing_submodules_by_name() -> None:
    net = nn.Sequential(nn.Sequential(nn.Linear(1, 1)), nn.ReLU())
    new = nn.Identity()
    net.set_submodule("0.0", new)
    assert net[0][0] is new
    net.set_submodule("0.more", nn.Tanh())
    assert isinstance(net.get_submodule("0.more"), nn.Tanh)
    with pytest.raises(AttributeError, match="no submodule 'other'"):
        net.set_submodule("0.other", new, strict=True)
    with pytest.raises(AttributeError, match="no submodule '5'"):
        net.set_submodule("5.0", new)
    with pytest.raises(AttributeError, match="no submodule 'forward'"):
        net.set_submodule("0.forward", new)
    with pytest.raises(ValueError, match="names no submodule"):
        net.set_submodule("", new)
    with pytest.raises(TypeError, match=r"must be an nn\.Module, not int"):
        net.set_submodule("0.0", 3)  # type: ignore[arg-type]


def test_new_memory_for_every_member() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    weight = net[0].weight
    before = weight.detach()
    assert net.to_empty(device="cpu") is net
    assert net[0].weight is weight
    assert weight.shape == before.shape
    assert weight.requires_grad
    with flow.no_grad():
        weight.fill_(5.0)
        assert not (before == 5.0).any().item()
    kept = net[0].bias.tolist()
    net.to_empty(device=None, recurse=False)
    assert net[0].bias.tolist() == kept


def test_sharing_memory_is_refused_with_the_reason() -> None:
    with pytest.raises(RuntimeError, match="tensors are not shared between processes"):
        nn.Linear(1, 1).share_memory()


def test_the_methods_that_pytorchs_module_has() -> None:
    torch = pytest.importorskip("torch")
    # Of other devices, or names of types.
    without = {"T_destination", "call_super_init", "dump_patches", "ipu", "mtia", "xpu"}
    wanted = {name for name in dir(torch.nn.Module()) if not name.startswith("_")}
    assert wanted - set(dir(nn.Module())) == without


def test_compiling_in_place_is_refused_and_graphs_are_named() -> None:
    with pytest.raises(NotImplementedError, match=r"nn\.Graph"):
        nn.Linear(2, 2).compile()


def test_a_private_hook_after_state_dict_may_return_a_dict_and_a_public_one_may_not() -> None:
    module = nn.Linear(1, 1)
    replacing = module._register_state_dict_hook(lambda module, found, prefix, metadata: {"only": 1})
    assert module.state_dict() == {"only": 1}
    replacing.remove()
    module.register_state_dict_post_hook(lambda module, found, prefix, metadata: found)
    with pytest.raises(RuntimeError, match="return None"):
        module.state_dict()


def test_a_private_hook_before_loading_gets_the_module_only_if_asked_to() -> None:
    module = nn.Linear(1, 1)
    seen: list[Any] = []
    module._register_load_state_dict_pre_hook(lambda found, prefix, *rest: seen.append((prefix, len(rest))))
    module._register_load_state_dict_pre_hook(lambda given, found, *rest: seen.append(given), with_module=True)
    nn.Sequential(module).load_state_dict({"0.weight": flow.zeros(1, 1), "0.bias": flow.zeros(1)})
    assert seen == [("0.", 5), module]
    again = copy.deepcopy(module)
    assert len(again._load_state_dict_pre_hooks) == 2


def test_loading_arrays() -> None:
    module = nn.Linear(2, 1)
    weight = np.array([[1.5, 2.5]])
    module.load_state_dict({"weight": weight, "bias": np.array([3])})
    weight[:] = 0
    assert module.weight.tolist() == [[1.5, 2.5]]
    assert (module.weight.dtype, module.bias.item()) == (flow.float32, 3)
    module.load_state_dict({"weight": np.ones((1, 2)), "bias": np.ones(1)}, assign=True)
    assert module.weight.dtype is flow.float64
    assert isinstance(module.weight, nn.Parameter)
    with pytest.raises(RuntimeError, match="'weight': expected a tensor, got an array of <U1"):
        module.load_state_dict({"weight": np.array([["a", "b"]]), "bias": np.zeros(1)})
    with pytest.raises(RuntimeError, match=r"'weight': shape \[2\]"):
        module.load_state_dict({"weight": np.zeros(2), "bias": np.zeros(1)})
    assert module.bias.item() == 1


def test_modules_that_appear_twice() -> None:
    shared = nn.Linear(1, 1)
    both = nn.Sequential(shared, shared)
    assert len(list(both.modules())) == 2
    assert list(both.modules(remove_duplicate=False)) == [both, shared, shared]


# Hooks of all modules


def test_hooks_of_all_modules_come_before_a_modules_own() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (flow, torch):
        order: list[str] = []
        everywhere = lib.nn.modules.module
        net = lib.nn.Sequential(lib.nn.Linear(2, 2), lib.nn.ReLU())

        def note(name: str, order: list[str] = order) -> Any:
            return lambda module, *_: order.append(f"{name} {type(module).__name__}")

        net[0].register_forward_hook(note("own after"))
        net[0].register_forward_pre_hook(note("own before"))
        net[0].register_full_backward_hook(note("own arguments"))
        handles = [
            everywhere.register_module_forward_pre_hook(note("before")),
            everywhere.register_module_forward_hook(note("after")),
            everywhere.register_module_full_backward_pre_hook(note("results")),
            everywhere.register_module_full_backward_hook(note("arguments")),
        ]
        try:
            net(lib.ones(1, 2).requires_grad_()).sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        found.append(order[:])
        net(lib.ones(1, 2))
        assert len(order) == len(found[-1]) + 2  # its own alone
    assert found[0] == found[1]


def test_hooks_of_all_modules_change_arguments_and_results() -> None:
    everywhere = nn.modules.module
    module = Sum()
    with everywhere.register_module_forward_pre_hook(lambda module, args: (args[0] * 2,)):
        assert module(flow.tensor(1.0), plus=1.0).item() == 3
    with everywhere.register_module_forward_hook(
        lambda module, args, kwargs, result: result * kwargs["plus"], with_kwargs=True
    ):
        assert module(flow.tensor(1.0), plus=2.0).item() == 6
    seen: list[Any] = []
    with (
        everywhere.register_module_forward_hook(lambda *args: seen.append(args[-1]), always_call=True),
        pytest.raises(ValueError, match="negative"),
    ):
        module(flow.tensor(1.0), plus=-1.0)
    assert seen == [None]
    x = flow.ones(1, requires_grad=True)
    with everywhere.register_module_backward_hook(lambda module, given, result: (given[0] * 3,)):
        module(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3]
    assert module(flow.tensor(1.0)).item() == 1


def test_a_graph_sees_hooks_of_all_modules() -> None:
    class Graph(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.module = Sum()

        def build(self, x: flow.Tensor) -> Any:
            return self.module(x)

    graph = Graph()
    assert graph(flow.tensor(1.0)).item() == 1
    with nn.modules.module.register_module_forward_hook(lambda module, args, result: result + 5):
        assert graph(flow.tensor(1.0)).item() == 6
    assert graph(flow.tensor(1.0)).item() == 1


def test_hooks_on_registration_may_replace_members() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (flow, torch):
        everywhere = lib.nn.modules.module
        seen: list[Any] = []

        def note(kind: str, seen: list[Any] = seen) -> Any:
            return lambda module, name, value: seen.append((kind, type(module).__name__, name, value is None))

        with (
            everywhere.register_module_parameter_registration_hook(note("parameter")),
            everywhere.register_module_buffer_registration_hook(note("buffer")),
            everywhere.register_module_module_registration_hook(note("module")),
        ):
            net = lib.nn.Sequential(lib.nn.Linear(1, 1, bias=False), lib.nn.BatchNorm1d(1, affine=False))
            net.more = lib.nn.ReLU()
            net.more = None
            net[0] = lib.nn.Linear(1, 1, bias=False)
            net[1].running_mean = lib.zeros(1)
            net[1].running_var = None
            net[0].weight = None
            net.set_submodule("1", lib.nn.BatchNorm1d(1, affine=False))
            net.set_submodule("1.more", lib.nn.ReLU())
            both = lib.nn.ModuleList([lib.nn.ReLU(), lib.nn.ReLU()])
            both[-1] = lib.nn.Tanh()
            values = lib.nn.ParameterList([lib.nn.Parameter(lib.ones(1))])
            values[0] = lib.nn.Parameter(lib.ones(1))
        with everywhere.register_module_module_registration_hook(lambda *args, lib=lib: lib.nn.Identity()):
            net.more = lib.nn.Tanh()
            net[0] = lib.nn.Tanh()
            net.set_submodule("1", lib.nn.Tanh())
            net.add_module("last", lib.nn.Tanh())
        assert all([isinstance(member, lib.nn.Identity) for member in (net.more, net[0], net[1])])
        assert isinstance(net.last, lib.nn.Identity)
        with everywhere.register_module_parameter_registration_hook(lambda module, name, x: x.requires_grad_(False)):
            net.extra = lib.nn.Parameter(lib.ones(1))
        assert not net.extra.requires_grad
        found.append(sorted(seen))
    assert found[0] == found[1]
