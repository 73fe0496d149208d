"""A graph notices changes of the state that it was built from, and builds a form for the new state."""

from __future__ import annotations

import collections
import gc
import pathlib
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.vm import settings

SCALE = 2.0
WEIGHTS = flow.ones(3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(3)
        self.factor = 2.0
        self.register_buffer("offset", flow.zeros(3))
        self.extra: Any = None
        self.calls = 0

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        self.calls += 1
        result = self.dropout(self.norm(self.linear(x))) * self.factor + self.offset
        return result if self.extra is None else self.extra(result)  # type: ignore[no-any-return]


class Of(nn.Graph):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def build(self, x: flow.Tensor) -> Any:
        return self.model(x)


def forms(graph: nn.Graph) -> int:
    return len(graph._forms)


def same_as_eager(graph: nn.Graph, eager: Callable[..., flow.Tensor], x: flow.Tensor) -> None:
    """Compare the three ways of calling with eager code, random numbers and running statistics included."""
    for call in (graph, graph, graph.run_by_vm):
        flow.manual_seed(3)
        found = call(x).numpy()
        flow.manual_seed(3)
        np.testing.assert_allclose(found, eager(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def replaced_weight(net: Net) -> None:
    net.linear.weight = nn.Parameter(flow.full((3, 3), 0.5))


def assigned_state(net: Net) -> None:
    net.load_state_dict({name: flow.ones_like(value) for name, value in net.state_dict().items()}, assign=True)


def through_the_registry(net: Net) -> None:
    net.linear._parameters["weight"] = nn.Parameter(flow.full((3, 3), 0.25))


def set_factor(net: Net) -> None:
    net.factor = 3.0


def replaced_buffer(net: Net) -> None:
    net.offset = flow.ones(3)


def replaced_module(net: Net) -> None:
    net.linear = nn.Linear(3, 3)


def added_module(net: Net) -> None:
    net.extra = nn.Tanh()


def deleted_bias(net: Net) -> None:
    net.linear.bias = None


def set_probability(net: Net) -> None:
    net.dropout.p = 0.1


def set_momentum(net: Net) -> None:
    net.norm.momentum = 0.5


def added_hook(net: Net) -> None:
    net.linear.register_forward_hook(lambda module, args, result: result * 2)


def added_hook_before(net: Net) -> None:
    net.linear.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def monkeypatched_forward(net: Net) -> None:
    setattr(net.dropout, "forward", lambda x: x * 7)  # noqa: B010 (mypy allows no assignment to a method)


CHANGES: list[Callable[[Net], Any]] = [
    lambda net: net.eval(),
    lambda net: net.norm.eval(),
    replaced_weight,
    assigned_state,
    through_the_registry,
    set_factor,
    replaced_buffer,
    replaced_module,
    added_module,
    deleted_bias,
    set_probability,
    set_momentum,
    added_hook,
    added_hook_before,
    monkeypatched_forward,
]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_modules(change: Callable[[Net], Any]) -> None:
    net = Net()
    twin = Net()
    twin.load_state_dict(net.state_dict())
    graph, x = Of(net), flow.randn(4, 3)
    same_as_eager(graph, twin, x)
    assert forms(graph) == 1
    flow.manual_seed(5)
    change(net)
    flow.manual_seed(5)
    change(twin)
    same_as_eager(graph, twin, x)
    assert forms(graph) == 2


def test_a_state_that_was_there_before_is_not_built_again() -> None:
    net = Net()
    graph, x = Of(net), flow.randn(4, 3)
    for _ in range(3):
        net.train()
        graph(x).numpy()
        net.eval()
        graph(x).numpy()
    assert forms(graph) == 2
    handle = net.linear.register_forward_hook(lambda module, args, result: result * 2)
    graph(x).numpy()
    handle.remove()
    graph(x).numpy()
    assert forms(graph) == 3


def test_what_build_does_not_read_makes_nothing_anew() -> None:
    net = Net()
    graph, x = Of(net), flow.randn(4, 3)
    graph(x).numpy()
    net.step = 3
    net.linear.note = "of a training loop"
    graph.best = 0.5
    nn.Linear(2, 2).extra = 1
    net(x)  # advances its counter
    graph(x).numpy()
    assert forms(graph) == 1


def test_flags_of_parameters_decide_what_is_trained() -> None:
    def steps(frozen: bool) -> Any:
        flow.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        class Train(nn.Graph):
            def __init__(self) -> None:
                super().__init__()
                self.model = model
                self.add_optimizer(optimizer)

            def build(self, x: flow.Tensor) -> flow.Tensor:
                loss: flow.Tensor = self.model(x).square().mean()
                loss.backward()
                return loss

        graph, x = Train(), flow.linspace(-1, 1, 12).reshape(4, 3)
        before = model[0].weight.detach().clone()
        model[0].requires_grad_(not frozen)
        graph(x).numpy()
        model[0].requires_grad_(frozen)
        middle = model[0].weight.detach().clone()
        graph(x).numpy()
        return [bool((one == other).all()) for one, other in ((before, middle), (middle, model[0].weight.detach()))]

    assert steps(frozen=True) == [True, False]
    assert steps(frozen=False) == [False, True]


def test_a_parameter_that_was_made_without_a_gradient() -> None:
    model = nn.Linear(2, 1, bias=False)
    model.weight = nn.Parameter(flow.ones(1, 2), requires_grad=False)

    class Graded(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def build(self, x: flow.Tensor) -> Any:
            return flow.ones(()) if self.model.weight.requires_grad else flow.zeros(())

    graph, x = Graded(), flow.ones(1, 2)
    assert graph(x).item() == 0
    model.weight.requires_grad_()
    assert graph(x).item() == 1
    model.weight.detach_()
    assert graph(x).item() == 0


def test_a_list_inside_of_a_tuple() -> None:
    factors = ([1.0], ({"b": 1.0},))

    class Scaled(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.factors = factors

        def build(self, x: flow.Tensor) -> flow.Tensor:
            return x * self.factors[0][0] * self.factors[1][0]["b"]

    by_closure = nn.Graph.trace(lambda x: x * factors[0][0] * factors[1][0]["b"])
    for graph in (Scaled(), by_closure):
        for first, second in ((1.0, 1.0), (5.0, 1.0), (5.0, 2.0)):
            factors[0][0], factors[1][0]["b"] = first, second
            assert graph(flow.ones(())).item() == first * second


@pytest.mark.host  # a global tensor is made when this module is imported
def test_variables_of_closures_and_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = flow.zeros(3)
    power = 1

    def scaled(x: flow.Tensor) -> flow.Tensor:
        return x * SCALE + WEIGHTS

    helper: Callable[..., flow.Tensor] = scaled

    class Around(nn.Graph):
        def build(self, x: flow.Tensor) -> Any:
            return helper(x) ** power + shift

    graph, x = Around(), flow.ones(2, 3)
    same_as_eager(graph, lambda x: (x * 2 + 1) ** 1, x)
    shift = flow.ones(3)
    same_as_eager(graph, lambda x: (x * 2 + 1) ** 1 + 1, x)
    power = 2
    same_as_eager(graph, lambda x: (x * 2 + 1) ** 2 + 1, x)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    same_as_eager(graph, lambda x: (x * 3 + 1) ** 2 + 1, x)
    monkeypatch.setitem(globals(), "WEIGHTS", flow.zeros(3))
    same_as_eager(graph, lambda x: (x * 3) ** 2 + 1, x)
    assert forms(graph) == 5
    number = 3.0
    monkeypatch.setitem(globals(), "SCALE", number * 1)  # an equal one, and another object
    same_as_eager(graph, lambda x: (x * 3) ** 2 + 1, x)
    assert forms(graph) == 5
    helper = flow.exp
    same_as_eager(graph, lambda x: x.exp() ** 2 + 1, x)


class Constants:
    scale = 2.0

    class Inner:
        offset = 1.0

    @classmethod
    def scaled(cls, x: flow.Tensor) -> flow.Tensor:
        return x * cls.scale + cls.Inner.offset


class Shared(nn.Module):
    factor = 1.0
    through = 1.0
    behind: float = 1.0
    factors = [1.0]  # noqa: RUF012 (changed in place below)
    calls = 0

    @property
    def value(self) -> float:
        return type(self).behind

    def helped(self, x: flow.Tensor) -> flow.Tensor:
        return x * SCALE * self.through

    @flow.no_grad()
    def forward(self, x: flow.Tensor) -> flow.Tensor:
        type(self).calls += 1
        x = self.helped(x) * self.factor * self.value * self.factors[0]
        return Constants.scaled(x) * self.missing if hasattr(self, "missing") else Constants.scaled(x)


def test_attributes_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Derived(Shared):
        pass

    class Scaled(nn.Graph):
        own = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.model = Derived()

        def build(self, x: flow.Tensor) -> Any:
            return self.model(x) * self.own * type(self).own

    graph, model, x = Scaled(), Derived(), flow.ones(2)
    changes: list[tuple[Any, str, Any]] = [
        (Constants, "scale", 3.0),
        (Constants.Inner, "offset", 2.0),
        (Shared, "factor", 4.0),
        (Derived, "factor", 5.0),
        (Shared, "through", 6.0),
        (Shared, "behind", 0.5),
        (Shared, "factors", [2.0]),
        (Shared, "missing", 2.0),
        (Scaled, "own", 3.0),
        (Shared, "helped", lambda self, x: x * 10.0),
        (Shared, "value", property(lambda self: 0.25)),
        (Constants, "scaled", staticmethod(lambda x: x - 1.0)),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it keeps fewer forms than there are states here
        same_as_eager(graph, model, x)
        for owner, name, value in changes:
            monkeypatch.setattr(owner, name, value, raising=False)
            before = graph(x)
            np.testing.assert_allclose(before.numpy(), (model(x) * Scaled.own**2).numpy(), err_msg=name)
        Shared.factors[0] = 7.0
        np.testing.assert_allclose(graph(x).numpy(), (model(x) * Scaled.own**2).numpy())
        monkeypatch.undo()
        same_as_eager(graph, model, x)


def test_attributes_of_classes_are_compared_by_value_and_building_may_count_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, x = Of(Shared()), flow.ones(2)
    found = graph(x).tolist()
    calls = Shared.calls
    number = 1.0
    monkeypatch.setattr(Shared, "factor", number * 1)  # an equal one, and another object
    assert graph(x).tolist() == found
    Shared.calls += 10
    assert graph(x).tolist() == found
    assert (forms(graph), Shared.calls) == (1, calls + 10)
    monkeypatch.setattr(Shared, "factor", 3.0)
    form = graph._forms[0]
    assert form.difference() == "Shared.factor was 1.0, and is 3.0"


def test_attributes_of_the_class_of_a_compiled_method() -> None:
    class Service:
        factor = 1.0
        offset = 0.0

        @flow.global_function
        def predict(self, x: flow.Tensor) -> flow.Tensor:
            return self.scaled(x) * self.factor

        def scaled(self, x: flow.Tensor) -> flow.Tensor:
            return x + type(self).offset

    @flow.global_function
    def predict(x: flow.Tensor) -> flow.Tensor:
        return x * Service.factor

    service, x = Service(), flow.ones(1)
    for Service.factor, Service.offset in ((1.0, 0.0), (2.0, 0.0), (2.0, 5.0)):
        assert service.predict(x).item() == (1 + Service.offset) * Service.factor
        assert predict(x).item() == Service.factor
    service.factor = 10.0
    assert service.predict(x).item() == 60.0


def test_compiled_functions_and_methods() -> None:
    bias = flow.ones(2)

    @flow.global_function
    def add(x: flow.Tensor) -> flow.Tensor:
        return x + bias

    assert add(flow.ones(2)).tolist() == [2, 2]
    bias = flow.full((2,), 5.0)
    assert add(flow.ones(2)).tolist() == [6, 6]

    class Service:
        def __init__(self) -> None:
            self.model = nn.Linear(2, 2)
            self.factor = 1.0
            self.requests = 0

        @flow.global_function
        def predict(self, x: flow.Tensor) -> flow.Tensor:
            return self.model(x) * self.factor  # type: ignore[no-any-return]

    service, x = Service(), flow.ones(1, 2)
    for factor in (1.0, 3.0):
        service.factor = factor
        expected = (service.model(x) * service.factor).detach().numpy()
        np.testing.assert_allclose(service.predict(x).numpy(), expected, rtol=1e-6)
    service.model = nn.Linear(2, 2)
    expected = (service.model(x) * 3).detach().numpy()
    np.testing.assert_allclose(service.predict(x).numpy(), expected, rtol=1e-6)
    service.requests += 1
    service.predict(x).numpy()
    assert forms(service.predict.graph) == 3
    gone = weakref.ref(service)
    del service
    assert gone() is None  # without the collector: nothing that was noticed keeps the object


def test_attributes_of_the_graph() -> None:
    class Scaled(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.factor = 2

        def build(self, x: flow.Tensor) -> Any:
            return x * self.factor

    graph, x = Scaled(), flow.ones(2)
    assert graph(x).tolist() == [2, 2]
    graph.factor = 3
    assert graph(x).tolist() == [3, 3]
    net = nn.Linear(2, 2)
    other = Of(net)
    other(flow.ones(1, 2)).numpy()
    other.model = nn.Identity()
    assert other(flow.ones(1, 2)).tolist() == [[1, 1]]


@pytest.mark.parametrize("name", ["config", "name", "_kind"])
def test_attributes_of_modules_that_are_named_as_those_of_graphs(name: str) -> None:
    class Scale(nn.Module):
        def forward(self, x: flow.Tensor) -> Any:
            return x * getattr(self, name)

    module, x = Scale(), flow.ones(2)
    setattr(module, name, 2)
    graph = Of(module)
    assert graph(x).tolist() == [2, 2]
    setattr(module, name, 3)
    assert graph(x).tolist() == [3, 3]
    assert forms(graph) == 2


def test_settings_after_the_build() -> None:
    net = nn.Linear(3, 3)
    graph, x = Of(net), flow.ones(2, 3)
    assert graph(x).dtype is flow.float32
    graph.config.enable_amp(dtype=flow.bfloat16)
    assert graph(x).dtype is flow.bfloat16
    graph.config.enable_amp(False)
    assert graph(x).dtype is flow.float32
    assert forms(graph) == 2
    graph.config.disable_pass("fuse_elementwise")
    graph(x).numpy()
    assert forms(graph) == 3
    graph.model.config.activation_checkpointing = True
    graph(x).numpy()
    assert forms(graph) == 4


@pytest.mark.host
def test_what_surrounds_a_call() -> None:
    class Made(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def build(self, x: flow.Tensor) -> Any:
            return self.linear(x), flow.zeros(2)

    graph, x = Made(), flow.ones(1, 2)
    for _ in range(2):
        assert [result.dtype for result in graph(x)] == [flow.float32, flow.float32]
        with flow.autocast("cpu", dtype=flow.bfloat16):
            assert [result.dtype for result in graph(x)] == [flow.bfloat16, flow.float32]
        with flow.autocast("cpu", dtype=flow.float16):
            assert [result.dtype for result in graph(x)] == [flow.float16, flow.float32]
    assert forms(graph) == 3
    before = flow.get_default_dtype()
    flow.set_default_dtype(flow.float64)
    try:
        assert graph(x)[1].dtype is flow.float64
    finally:
        flow.set_default_dtype(before)
    assert graph(x)[1].dtype is flow.float32
    assert forms(graph) == 4


@pytest.mark.host
@pytest.mark.skipif(settings.race_check(None), reason="no call runs inline where accesses are watched")
def test_calls_that_run_inline_look_as_well() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval()
    graph, x = Of(net), flow.ones(2, 3)
    for _ in range(3):
        graph(x).numpy()
    net[0].bias = nn.Parameter(flow.full((3,), 100.0))
    for _ in range(3):
        assert (graph(x).numpy() > 50).all()


def test_forms_of_several_shapes_and_states() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    graph = Of(net)
    graph.with_dynamic_input_shape(size=2)
    for mode in (True, False, True, False):
        net.train(mode)
        for rows in (1, 2):
            same_as_eager(graph, net, flow.randn(rows, 3))
    assert forms(graph) == 4
    graph(flow.randn(3, 3)).numpy()
    assert forms(graph) == 3


def test_changes_again_and_again_are_warned_of_once() -> None:
    net = nn.Dropout(0.0)
    graph, x = Of(net), flow.ones(2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for step in range(20):
            net.p = step / 20
            graph(x).numpy()
    assert forms(graph) == 8
    (message,) = [str(one.message) for one in found]
    assert "has been built for 9 states" in message
    assert "model.p was 0.35, and is 0.4" in message
    assert found[0].filename == __file__


def test_a_graph_of_another_state_is_not_saved(tmp_path: pathlib.Path) -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    graph, x = Of(net), flow.ones(2, 3)
    graph(x).numpy()
    net.eval()
    with pytest.raises(RuntimeError, match=r"changed since it was built: model\.1\.training was True, and is False"):
        flow.save(graph, tmp_path / "graph")
    graph(x).numpy()
    flow.save(graph, tmp_path / "graph")
    np.testing.assert_array_equal(flow.load_graph(tmp_path / "graph")(x).numpy(), graph(x).numpy())


def test_a_build_that_fails_leaves_the_forms_there_are() -> None:
    net = nn.Sequential(nn.Linear(3, 3))
    graph, x = Of(net), flow.ones(2, 3)
    expected = graph(x).numpy()
    kept = net[0]
    net[0] = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="linear"):
        graph(x)
    net[0] = kept
    np.testing.assert_array_equal(graph(x).numpy(), expected)
    assert forms(graph) == 1


def test_nothing_is_kept_alive() -> None:
    net = Net()
    graph, x = Of(net), flow.ones(2, 3)
    graph(x).numpy()
    net.eval()
    graph(x).numpy()
    references: list[weakref.ref[Any]] = [weakref.ref(graph), weakref.ref(net), weakref.ref(net.linear)]
    gc.disable()
    try:
        del graph, net
        assert [reference() for reference in references] == [None, None, None]
    finally:
        gc.enable()


def test_what_is_recorded_while_building_is_recorded_by_nobody_else() -> None:
    net = Net()
    Of(net)(flow.ones(2, 3)).numpy()
    assert "__getattribute__" not in nn.Module.__dict__
    assert "__getattribute__" not in nn.Graph.__dict__


def _multiplied(factor: float) -> tuple[Callable[[flow.Tensor], flow.Tensor], Callable[[float], None]]:
    """A function that multiplies, and one that sets its factor."""

    def function(x: flow.Tensor) -> flow.Tensor:
        return x * factor

    def change(number: float) -> None:
        nonlocal factor
        factor = number

    return function, change


def test_closures_of_one_function_have_variables_of_their_own() -> None:
    first, change_first = _multiplied(2)
    second, change_second = _multiplied(3)
    both = nn.Graph.trace(lambda x: second(first(x)))
    assert both(flow.ones(1)).item() == 6
    change_second(7)
    assert both(flow.ones(1)).item() == 14
    change_first(5)
    assert both(flow.ones(1)).item() == 35


class _Scaled(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return x * self.factor


class _Plain:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, module: nn.Module, args: Any, result: flow.Tensor) -> flow.Tensor:
        return self.scaled(module, args, result)

    def scaled(self, module: nn.Module, args: Any, result: flow.Tensor) -> flow.Tensor:
        return result * self.factor


def test_hooks_that_are_methods_of_two_objects() -> None:
    model, hooks = _Scaled(1.0), [_Plain(2.0), _Plain(3.0)]
    for hook in hooks:
        model.register_forward_hook(hook.scaled)
    graph, x = Of(model), flow.ones(1)
    assert graph(x).item() == 6
    hooks[1].factor = 5.0
    assert graph(x).item() == 10
    hooks[0].factor = 7.0
    assert graph(x).item() == 35


def test_the_variables_of_a_forward_and_of_hooks_that_were_assigned() -> None:
    model = nn.Sequential(nn.Identity(), nn.Identity())
    function, change_function = _multiplied(2)
    before, change_before = _multiplied(3)
    after, change_after = _multiplied(5)
    setattr(model[0], "forward", function)  # noqa: B010 (mypy allows no assignment to a method)
    model[1].register_forward_pre_hook(lambda module, args: before(args[0]))
    model[1].register_forward_hook(lambda module, args, result: after(result))
    graph, x = Of(model), flow.ones(1)
    assert graph(x).item() == 30
    change_function(7)
    assert graph(x).item() == 105
    change_before(11)
    assert graph(x).item() == 385
    change_after(13)
    assert graph(x).item() == 1001


def test_a_hook_that_is_a_method_of_a_dict() -> None:
    seen: dict[nn.Module, Any] = {}
    model = _Scaled(2.0)
    model.register_forward_pre_hook(seen.setdefault)
    assert Of(model)(flow.ones(1)).item() == 2
    assert list(seen) == [model]


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (0j, complex(-0.0, -0.0)), (complex(0.0, 0.0), complex(0.0, -0.0))])
def test_zeros_of_two_signs_make_two_forms(numbers: tuple[complex, complex]) -> None:
    attribute = _Scaled(1.0)
    graph = Of(attribute)
    argument = nn.Graph.trace(lambda x, number: x * number)
    x = flow.ones(1, dtype=flow.complex64)
    for number in numbers:
        attribute.factor = number  # type: ignore[assignment]
        eager = (x * number).numpy()
        assert graph(x).numpy().tobytes() == eager.tobytes()
        assert argument(x, number).numpy().tobytes() == eager.tobytes()
    assert forms(graph) == 2


def test_nan_makes_one_form() -> None:
    scaled = nn.Graph.trace(lambda x, number: x * number)
    model = _Scaled(float("nan"))
    graph, x = Of(model), flow.ones(1, dtype=flow.complex64)
    for _ in range(3):
        scaled(x, complex(float("nan"), 1.0)).numpy()
        model.factor = float("nan")
        graph(x).numpy()
    assert forms(scaled.graph) == forms(graph) == 1


class _Listed(nn.Module):
    """Reads containers of numbers, parameters and layers, of any size."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_Scaled(1.0) for _ in range(count)])
        self.weights = nn.ParameterList([nn.Parameter(flow.ones(1)) for _ in range(count)])
        self.numbers = {str(number): 1.0 for number in range(count)}
        self.sizes: list[Any] = [1.0] * count

    def forward(self, x: flow.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        for factor in [*self.weights, *self.numbers.values(), *self.sizes]:
            x = x * (factor[0] if isinstance(factor, list) else factor)
        return x


@pytest.mark.parametrize("count", [3, 70])
def test_changes_within_containers(count: int) -> None:
    model = _Listed(count)
    graph, x = Of(model), flow.ones(1)
    assert graph(x).item() == 1
    model.layers[2] = _Scaled(2.0)
    assert graph(x).item() == 2
    model.weights[2] = nn.Parameter(flow.full((1,), 3.0))
    assert graph(x).item() == 6
    model.numbers = {**model.numbers, "2": 5.0}
    assert graph(x).item() == 30
    model.sizes = [7.0, *model.sizes[1:]]
    assert graph(x).item() == 210
    model.sizes.append(11.0)
    assert graph(x).item() == 2310
    assert forms(graph) == 6


FACTORS = [1.0]


def test_small_containers_that_change_in_place(tmp_path: pathlib.Path) -> None:
    model = _Listed(2)
    model.sizes[0] = [2.0]
    table = {"closure": 3.0}

    class Around(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def build(self, x: flow.Tensor) -> Any:
            return self.model(x) * table["closure"] * FACTORS[0]

    graph, x = Around(), flow.ones(1)
    assert graph(x).item() == 6
    model.numbers["1"] = 5.0
    assert graph(x).item() == 30
    model.sizes[0][0] = 4.0
    assert graph(x).item() == 60
    table["closure"] = 6.0
    assert graph(x).item() == 120
    FACTORS[0] = 7.0
    with pytest.raises(RuntimeError, match="the items of the global 'FACTORS' have changed"):
        flow.save(graph, tmp_path / "graph")
    assert graph(x).item() == 840
    FACTORS[0] = 1.0
    assert graph(x).item() == 120
    assert forms(graph) == 5


def test_attributes_that_are_set_on_a_block_are_those_of_the_module() -> None:
    inner = _Scaled(2.0)
    graph, x = Of(nn.Sequential(inner, nn.Identity())), flow.ones(1)
    block: Any = graph.model
    assert graph(x).item() == 2
    block[0].factor = 3.0
    assert inner.factor == 3.0
    assert graph(x).item() == 3
    setattr(block, "1", block[0])
    assert graph(x).item() == 9
    assert block.origin[1] is inner
    del block[0].factor
    with pytest.raises(AttributeError, match="factor"):
        graph(x)
    with pytest.raises(AttributeError, match="'path' is an attribute of the block"):
        block.path = "elsewhere"
    block.config.set_stage(0)
    assert repr(block.config) == "BlockConfig(stage_id=0)"


class _Picked(nn.Module):
    """Multiplies by an item of a container."""

    def __init__(self, numbers: Any, key: Any) -> None:
        super().__init__()
        self.numbers, self.key = numbers, key

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        return x * float(self.numbers[self.key])


@pytest.mark.parametrize(
    ("numbers", "key"),
    [
        (collections.OrderedDict(k=2), "k"),
        (collections.Counter(k=2), "k"),
        (collections.defaultdict(int, k=2), "k"),
        (collections.deque([2]), 0),
    ],
)
def test_containers_of_other_types_that_change_in_place(numbers: Any, key: Any) -> None:
    graph, x = Of(_Picked(numbers, key)), flow.ones(1)
    assert graph(x).item() == 2
    numbers[key] = 3
    assert graph(x).item() == 3
    assert forms(graph) == 2


def test_an_array_among_the_arguments_that_changes_in_place() -> None:
    class Scaled(nn.Graph):
        def build(self, x: flow.Tensor, factors: Any) -> flow.Tensor:
            return x * float(factors[0])

    graph, x, factors = Scaled(), flow.ones(1), np.array([2.0])
    assert graph(x, factors).item() == 2
    factors[0] = 3
    with pytest.raises(ValueError, match=r"array\(\[2\.\]\) when the graph was built, and is array\(\[3\.\]\)"):
        graph(x, factors)
    assert graph(x, np.array([2.0])).item() == 2


def test_the_set_of_disabled_passes_cannot_change_unnoticed() -> None:
    graph = Of(_Scaled(2.0))
    assert graph(flow.ones(1)).item() == 2
    assert not hasattr(graph.config.disabled, "add")
    graph.config.disable_pass("dead_ops")
    assert graph(flow.ones(1)).item() == 2
    assert forms(graph) == 2


def test_messages_describe_large_lists(tmp_path: pathlib.Path) -> None:
    net = Net().eval()
    net.forward = lambda x: x * len(net.extra)  # type: ignore[method-assign]
    net.extra = [1] * 100
    graph = Of(net)
    graph(flow.ones(1, 3))
    net.extra = [1]
    with pytest.raises(RuntimeError, match="extra was a list of 100 items, and is a list of 1 items"):
        flow.save(graph, tmp_path / "graph")
