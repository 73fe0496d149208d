"""`nn.Module`: registration, traversal, state dicts, hooks, conversion, repr, copying."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.planted import failed_tensor
from vmflow import nn


class Scaled(nn.Module):
    """A module at the top level, so that it can be pickled."""

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.scale = nn.Parameter(flow.ones(size))
        self.register_buffer("shift", flow.zeros(size))
        self.register_buffer("cache", flow.zeros(1), persistent=False)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        result: flow.Tensor = x * self.scale + self.shift
        return result


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Scaled()
        self.second = nn.Linear(3, 2)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        result: flow.Tensor = self.second(self.first(x))
        return result


# Registration


def test_assignment_registers_by_kind() -> None:
    net = Net()
    net.extra = nn.Buffer(flow.zeros(2), persistent=False)
    net.plain = 7
    assert list(net._modules) == ["first", "second"]
    assert list(net.first._parameters) == ["scale"]
    assert list(net._buffers) == ["extra"]
    assert "extra" not in net.state_dict()
    assert net.__dict__["plain"] == 7
    net.tensor = flow.zeros(2)  # a plain tensor is an ordinary attribute
    assert "tensor" in net.__dict__


@pytest.mark.parametrize(
    ("value", "kind"),
    [(lambda: nn.Parameter(flow.zeros(1)), "parameter"), (nn.Linear, "module"), (nn.Buffer, "buffer")],
)
def test_assigning_before_init_raises(value: Any, kind: str) -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            self.member = nn.Linear(1, 1) if kind == "module" else value()

    with pytest.raises(AttributeError, match=f"{kind} 'member' before Forgetful has called"):
        Forgetful()


def test_using_a_module_without_init_says_so() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            pass

    with pytest.raises(AttributeError, match=r"must call super\(\).__init__\(\)"):
        Forgetful()(1)
    with pytest.raises(AttributeError, match="before Forgetful"):
        Forgetful().register_buffer("b", None)


def test_a_registered_member_is_replaced_by_its_kind_only() -> None:
    net: Any = Net()
    with pytest.raises(TypeError, match="cannot assign Tensor to the parameter 'scale'"):
        net.first.scale = flow.zeros(3)
    with pytest.raises(TypeError, match="cannot assign Linear to the parameter"):
        net.first.scale = nn.Linear(1, 1)
    with pytest.raises(TypeError, match="cannot assign int to the module 'second'"):
        net.second = 3
    with pytest.raises(TypeError, match="cannot assign str to the buffer 'shift'"):
        net.first.shift = "no"
    net.first.shift = flow.ones(3)
    assert net.first._buffers["shift"] is net.first.shift
    net.first.scale = None
    assert net.first.scale is None
    assert "first.scale" not in net.state_dict()
    net.first.scale = nn.Parameter(flow.zeros(3))
    assert "first.scale" in net.state_dict()
    # Another kind of member takes the name over.
    net.second = nn.Parameter(flow.zeros(1))
    assert "second" in net._parameters
    assert "second" not in net._modules
    net.first.shift = nn.Linear(1, 1)
    assert "shift" not in net.first._buffers
    assert "shift" in net.first._modules


def test_a_module_replaces_a_plain_attribute() -> None:
    net = Net()
    net.head = None
    net.head = nn.Linear(2, 1)
    assert "head" not in net.__dict__
    assert isinstance(net.head, nn.Linear)


def test_names_are_checked() -> None:
    net = Net()
    members: Any = (
        (net.register_parameter, nn.Parameter(flow.zeros(1))),
        (net.register_buffer, flow.zeros(1)),
        (net.add_module, nn.Linear(1, 1)),
    )
    for register, member in members:
        for bad in ("", "a.b", "forward"):
            with pytest.raises(KeyError):
                register(bad, member)
        with pytest.raises(TypeError, match="string"):
            register(3, member)
    with pytest.raises(KeyError, match="already has an attribute 'first'"):
        net.register_buffer("first", flow.zeros(1))


def test_wrong_kinds_are_refused() -> None:
    net = Net()
    with pytest.raises(TypeError, match=r"must be an nn\.Parameter"):
        net.register_parameter("p", flow.zeros(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a tensor"):
        net.register_buffer("b", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be an nn\.Module"):
        net.register_module("m", 3)  # type: ignore[arg-type]


def test_a_parameter_must_be_a_leaf() -> None:
    made = nn.Parameter(flow.zeros(1))
    made._autograd = (nn.Parameter(flow.zeros(1)) * 2)._autograd
    with pytest.raises(ValueError, match="leaf"):
        Net().register_parameter("p", made)


def test_deleting_members() -> None:
    net = Net()
    del net.first.scale
    del net.first.cache
    del net.second
    assert list(net.state_dict()) == ["first.shift"]
    assert "cache" not in net.first._non_persistent_buffers_set
    with pytest.raises(AttributeError):
        del net.second
    net.plain = 1
    del net.plain
    assert not hasattr(net, "plain")


def test_missing_attribute() -> None:
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = Net().nothing


def test_dir_shows_members() -> None:
    names = dir(nn.Sequential(nn.Linear(1, 1)))
    assert "0" not in names
    assert {"first", "second", "forward", "training"} <= set(dir(Net()))


# Parameters


@pytest.mark.host
def test_parameter_shares_memory_and_not_history() -> None:
    base = flow.ones(3, requires_grad=True)
    made = nn.Parameter(base * 2)
    assert made.is_leaf
    assert made.requires_grad
    data = flow.zeros(3)
    parameter = nn.Parameter(data)
    data.add_(1)
    np.testing.assert_array_equal(parameter.detach().numpy(), np.ones(3))
    assert repr(parameter).startswith("Parameter containing:\ntensor([1., 1., 1.], requires_grad=True)")


def test_parameter_takes_attributes_and_keeps_them_when_copied() -> None:
    parameter: Any = nn.Parameter(flow.ones(2, dtype=flow.bfloat16), requires_grad=False)
    parameter.note = ["frozen"]
    copies: list[Any] = [copy.deepcopy(parameter), pickle.loads(pickle.dumps(parameter))]
    for again in copies:
        assert again.note == ["frozen"]
        assert again.note is not parameter.note
        assert type(again) is nn.Parameter
        assert not again.requires_grad
        assert again.dtype is flow.bfloat16
        assert again._blob.storage is not parameter._blob.storage


def test_deep_copy_takes_the_gradient_along() -> None:
    parameter = nn.Parameter(flow.ones(2))
    (parameter * 3).sum().backward()
    again = copy.deepcopy(parameter)
    assert again.grad is not None
    assert again.grad is not parameter.grad
    np.testing.assert_array_equal(again.grad.numpy(), [3, 3])


def test_ops_on_parameters_give_tensors() -> None:
    assert type(nn.Parameter(flow.ones(2)) + 1) is flow.Tensor
    assert type(nn.Parameter(flow.ones(2)).detach()) is flow.Tensor


def test_parameter_refuses_dtypes_without_gradients() -> None:
    with pytest.raises(RuntimeError, match="floating-point"):
        nn.Parameter(flow.tensor([1, 2]))
    assert not nn.Parameter(flow.tensor([1, 2]), requires_grad=False).requires_grad
    with pytest.raises(TypeError, match="expected a tensor, got list"):
        nn.Parameter([1.0])  # type: ignore[arg-type]
    assert nn.Parameter().numel() == 0


def test_buffer_copies() -> None:
    buffer = nn.Buffer(flow.arange(3), persistent=False)
    for again in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        assert type(again) is nn.Buffer
        assert not again.persistent
        assert again.tolist() == [0, 1, 2]


# Traversal


def tied() -> nn.Module:
    net = Net()
    net.third = net.second
    net.alias = net.second.weight
    return net


def test_members_come_once() -> None:
    net = tied()
    names = [name for name, _ in net.named_parameters()]
    assert names == ["alias", "first.scale", "second.bias"]
    everything = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    assert everything == [
        "alias",
        "first.scale",
        "second.weight",
        "second.bias",
        "third.weight",
        "third.bias",
    ]
    assert len(list(net.parameters())) == 3
    assert [name for name, _ in net.named_modules()] == ["", "first", "second"]
    assert [name for name, _ in net.named_children()] == ["first", "second"]
    assert [name for name, _ in net.named_modules(prefix="m", remove_duplicate=False)] == [
        "m",
        "m.first",
        "m.second",
        "m.third",
    ]
    assert [name for name, _ in net.named_buffers("x")] == ["x.first.shift", "x.first.cache"]
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["alias"]
    assert len(list(net.buffers())) == 2
    assert len(list(net.modules())) == 3
    assert len(list(net.children())) == 2


def test_getting_by_dotted_name() -> None:
    net = nn.Sequential(Net(), Net())
    assert net.get_submodule("1.second") is net[1].second
    assert net.get_submodule("") is net
    assert net.get_parameter("0.first.scale") is net[0].first.scale
    assert net.get_buffer("0.first.shift") is net[0].first.shift
    with pytest.raises(AttributeError, match="no submodule 'third'"):
        net.get_submodule("1.third.x")
    with pytest.raises(AttributeError, match="no parameter 'shift'"):
        net.get_parameter("0.first.shift")
    with pytest.raises(AttributeError, match="no buffer 'scale'"):
        net.get_buffer("0.first.scale")


# State dicts


def test_state_dict_shares_memory_without_history() -> None:
    net = Net()
    state = net.state_dict(prefix="net.")
    assert list(state) == ["net.first.scale", "net.first.shift", "net.second.weight", "net.second.bias"]
    assert not state["net.first.scale"].requires_grad
    with flow.no_grad():
        net.first.scale.fill_(5)
    assert state["net.first.scale"].tolist() == [5, 5, 5]
    assert net.state_dict(keep_vars=True)["second.weight"] is net.second.weight
    given: dict[str, Any] = {"other": 1}
    assert net.state_dict(destination=given) is given
    assert next(iter(given)) == "other"


def test_load_state_dict_copies_and_casts() -> None:
    net, other = Net(), Net().double()
    weight = net.second.weight
    result = net.load_state_dict(other.state_dict())
    assert result.missing_keys == []
    assert result.unexpected_keys == []
    assert net.second.weight is weight
    assert weight.dtype is flow.float32
    np.testing.assert_allclose(weight.detach().numpy(), other.second.weight.detach().numpy(), rtol=1e-6)


def test_load_state_dict_collects_every_problem_and_changes_nothing() -> None:
    net = Net()
    before = {key: value.numpy() for key, value in net.state_dict().items()}
    state = {key: value + 1 for key, value in net.state_dict().items()}
    state["second.weight"] = flow.zeros(3, 3)
    state["second.bias"] = 5
    state["first.extra"] = flow.zeros(1)
    del state["first.shift"]
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    for part in (
        "missing keys: 'first.shift'",
        "unexpected keys: 'first.extra'",
        "'second.weight': shape [3, 3] does not fit the module's [2, 3]",
        "'second.bias': expected a tensor, got int",
        "Net",
    ):
        assert part in text
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key])


def test_load_state_dict_not_strict() -> None:
    net = Net()
    result = net.load_state_dict({"first.scale": flow.full((3,), 2.0), "other": flow.zeros(1)}, strict=False)
    assert result.missing_keys == ["first.shift", "second.weight", "second.bias"]
    assert result.unexpected_keys == ["other"]
    assert net.first.scale.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="shape"):
        net.load_state_dict({"first.scale": flow.zeros(1)}, strict=False)
    with pytest.raises(RuntimeError, match="imaginary"):
        net.load_state_dict({"first.scale": flow.zeros(3, dtype=flow.complex64)}, strict=False)
    with pytest.raises(TypeError, match="expected a dict"):
        net.load_state_dict([1])  # type: ignore[arg-type]


def test_load_state_dict_by_assignment() -> None:
    net = Net().requires_grad_(False)
    net.marked = nn.Buffer(flow.zeros(1))
    state = {key: value.double() for key, value in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net.second.weight.dtype is flow.float64
    assert isinstance(net.second.weight, nn.Parameter)
    assert not net.second.weight.requires_grad
    assert net.second.weight._blob.storage is state["second.weight"]._blob.storage
    assert isinstance(net.marked, nn.Buffer)
    net.requires_grad_()
    with pytest.raises(RuntimeError, match="int64 cannot be"):
        net.load_state_dict({"first.scale": flow.arange(3)}, strict=False, assign=True)


def test_loading_mends_a_model_whose_step_failed() -> None:
    net = nn.Linear(2, 2)
    state = {key: value.clone() for key, value in net.state_dict().items()}
    failure = failed_tensor()
    with flow.no_grad():
        net.weight.copy_(failure.expand(2, 2))
    with pytest.raises(ZeroDivisionError):
        net.weight.detach().numpy()
    net.load_state_dict(state)
    np.testing.assert_array_equal(net.weight.detach().numpy(), state["weight"].numpy())


# Modes and conversion


def test_train_and_eval() -> None:
    net = Net()
    assert net.training
    assert net.eval() is net
    assert not net.second.training
    assert net.train() is net
    assert net.first.training
    with pytest.raises(ValueError, match="True or False"):
        net.train(1)  # type: ignore[arg-type]


def test_gradients_can_be_turned_off_and_forgotten() -> None:
    net = Net()
    net.first.requires_grad_(False)
    net(flow.ones(2, 3)).sum().backward()
    assert net.first.scale.grad is None
    weight = net.second.weight
    assert weight.grad is not None
    gradient = weight.grad
    net.zero_grad(set_to_none=False)
    assert weight.grad is gradient
    assert not gradient.numpy().any()
    net.zero_grad()
    assert weight.grad is None


def test_casting() -> None:
    net = Net()
    net.register_buffer("count", flow.arange(2))
    weight = net.second.weight
    net(flow.ones(2, 3)).sum().backward()
    assert net.double() is net
    assert net.second.weight is weight
    assert weight.dtype is flow.float64
    assert weight.grad is not None
    assert weight.grad.dtype is flow.float64
    assert net.first.shift.dtype is flow.float64
    assert net.count.dtype is flow.int64
    assert weight.requires_grad
    for cast, dtype in (
        (net.half, flow.float16),
        (net.bfloat16, flow.bfloat16),
        (net.float, flow.float32),
    ):
        cast()
        assert weight.dtype is dtype
    net.to("cpu", flow.float64)
    assert weight.dtype is flow.float64
    net.to(flow.zeros(1))
    assert weight.dtype is flow.float32
    assert net.cpu() is net
    with pytest.raises(TypeError, match="int64"):
        net.to(flow.int64)
    with pytest.raises(RuntimeError, match="require gradients"):
        net.type(flow.int32)
    with pytest.raises(TypeError, match="type: dtype must be a vmflow dtype"):
        net.type("float64")  # type: ignore[arg-type]
    net.requires_grad_(False).type(flow.int32)
    assert weight.dtype is flow.int32
    with pytest.raises(flow.DeviceUnavailable):
        net.cuda(99)


def test_a_cast_model_computes_in_its_dtype() -> None:
    net = Net().double()
    x = np.random.default_rng(0).normal(size=(4, 3))
    expected = x @ net.second.weight.detach().numpy().T + net.second.bias.detach().numpy()
    np.testing.assert_allclose(net(flow.tensor(x)).detach().numpy(), expected, rtol=1e-12)


def test_apply_visits_children_first() -> None:
    seen: list[str] = []
    net = Net()
    assert net.apply(lambda module: seen.append(type(module).__name__)) is net
    assert seen == ["Scaled", "Linear", "Net"]


# Calling


def test_forward_must_be_defined() -> None:
    with pytest.raises(NotImplementedError, match="Module defines no forward"):
        nn.Module()(1)


def test_forward_hooks() -> None:
    net = Scaled()
    seen: list[str] = []

    def before(module: nn.Module, args: tuple[Any, ...]) -> Any:
        assert module is net
        seen.append("before")
        return args[0] + 1

    def after(module: nn.Module, args: tuple[Any, ...], result: flow.Tensor) -> Any:
        seen.append("after")
        assert args[0].tolist() == [2, 2, 2]
        return result * 10

    handle = net.register_forward_pre_hook(before)
    with net.register_forward_hook(after):
        assert net(flow.ones(3)).tolist() == [20, 20, 20]
    assert net(flow.ones(3)).tolist() == [2, 2, 2]
    handle.remove()
    assert net(flow.ones(3)).tolist() == [1, 1, 1]
    assert seen == ["before", "after", "before"]


def test_hooks_that_return_nothing_change_nothing() -> None:
    net: Any = Scaled()
    net.register_forward_pre_hook(lambda module, args: None)
    net.register_forward_hook(lambda module, args, result: None)
    net.register_full_backward_hook(lambda module, grad_input, grad_output: None)
    x = flow.ones(3, requires_grad=True)
    net(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 1]
    assert net.scale.grad.tolist() == [1, 1, 1]


def test_backward_hook_sees_and_changes_gradients() -> None:
    net: Any = Scaled()
    with flow.no_grad():
        net.scale.fill_(3)
    seen: list[tuple[Any, Any]] = []

    def hook(module: nn.Module, grad_input: Any, grad_output: Any) -> Any:
        seen.append((grad_input[0].tolist(), grad_output[0].tolist()))
        return (grad_input[0] * 100,)

    handle = net.register_full_backward_hook(hook)
    x = flow.ones(3, requires_grad=True)
    (net(x) * 2).sum().backward()
    assert seen == [([6, 6, 6], [2, 2, 2])]
    assert x.grad is not None
    assert x.grad.tolist() == [600, 600, 600]
    assert net.scale.grad.tolist() == [2, 2, 2]
    handle.remove()
    net(x).sum().backward()
    assert len(seen) == 1


def test_backward_hook_of_a_module_whose_arguments_need_no_gradient() -> None:
    net = Scaled()
    seen: list[Any] = []
    net.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append((grad_input, grad_output)))
    net(flow.ones(3)).sum().backward()
    ((grad_input, grad_output),) = seen
    assert grad_input == (None,)
    assert grad_output[0].tolist() == [1, 1, 1]
    with flow.no_grad():
        net(flow.ones(3))
    assert len(seen) == 1


def test_backward_hook_with_several_arguments_and_results() -> None:
    class Swap(nn.Module):
        def forward(self, name: str, x: flow.Tensor, y: flow.Tensor) -> Any:
            return y * 2, x * 3, name

    net = Swap()
    seen: list[Any] = []
    net.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append((grad_input, grad_output)))
    x, y = flow.ones(1, requires_grad=True), flow.ones(2)
    a, b, name = net("n", x, y)
    assert name == "n"
    (b.sum() + a.sum()).backward()
    ((grad_input, grad_output),) = seen
    assert grad_input[0] is None
    assert grad_input[1].tolist() == [3]
    assert grad_input[2] is None
    assert grad_output[0] is None  # y * 2 needs no gradient
    assert grad_output[1].tolist() == [1]
    assert grad_output[2] is None


def test_backward_hook_must_return_one_gradient_per_argument() -> None:
    net = Scaled()
    net.register_full_backward_hook(lambda module, grad_input, grad_output: (None, None))
    with pytest.raises(RuntimeError, match="returned 2 gradients for 1 arguments"):
        net(flow.ones(3, requires_grad=True)).sum().backward()


async def test_a_model_is_awaited_through_its_result() -> None:
    net = Net()
    y = await net(flow.ones(2, 3))
    assert tuple(y.shape) == (2, 2)


# Repr, copying


def test_repr_is_a_tree() -> None:
    class Described(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
            self.register_module("none", None)

        def extra_repr(self) -> str:
            return "one=1\ntwo=2"

    assert repr(Described()) == (
        "Described(\n"
        "  one=1\n"
        "  two=2\n"
        "  (inner): Sequential(\n"
        "    (0): Linear(in_features=1, out_features=2, bias=True)\n"
        "    (1): ReLU()\n"
        "  )\n"
        "  (none): None\n"
        ")"
    )
    assert repr(nn.Module()) == "Module()"


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_whole_and_independent(again: Any) -> None:
    net = nn.Sequential(Scaled(), Scaled())
    net[1].scale = net[0].scale
    net.eval()
    twin = again(net)
    assert twin[1].scale is twin[0].scale
    assert twin[0].scale is not net[0].scale
    assert not twin[1].training
    assert twin[0]._non_persistent_buffers_set == {"cache"}
    with flow.no_grad():
        twin[0].scale.fill_(9)
    assert net[0].scale.tolist() == [1, 1, 1]
    assert twin(flow.ones(3)).tolist() == [81, 81, 81]
    assert list(twin.state_dict()) == list(net.state_dict())


def test_shallow_copies_can_be_made() -> None:
    net = Net()
    twin = copy.copy(net)
    assert twin.second is net.second


@pytest.mark.parametrize("given", [None, 3, "text", [1.0]])
def test_operands_of_layers_must_be_tensors(given: object) -> None:
    named = {"conv1d": nn.Conv1d(1, 1, 1), "layer_norm": nn.LayerNorm(3), "softmax": nn.Softmax(dim=0)}
    for name, layer in {**named, "BatchNorm1d": nn.BatchNorm1d(3), "GRUCell": nn.GRUCell(3, 2)}.items():
        with pytest.raises(TypeError, match=f"^{name}: expected tensors, got {type(given).__name__}"):
            layer(given)


def test_attribute_errors_of_users_modules_are_unchanged() -> None:
    class Own(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.shape

    class Derived(nn.Linear):
        def forward(self, input: Any) -> Any:
            return input.missing

    for module in (Own(), nn.Sequential(Own()), Derived(2, 2)):
        with pytest.raises(AttributeError, match=r"shape|missing"):
            module(None)
    with pytest.raises(AttributeError, match="missing"):
        Derived(2, 2)(flow.ones(2))
