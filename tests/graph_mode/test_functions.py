"""Plain functions compiled into graphs: `global_function` and `nn.Graph.trace`."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn
from vmflow.graph_mode import CompiledFunction, GraphConfig

from .support import computing


def equal(found: flow.Tensor, wanted: flow.Tensor) -> None:
    np.testing.assert_array_equal(found.detach().numpy(), wanted.detach().numpy(), strict=True)


def values(*shape: int, seed: int = 0) -> flow.Tensor:
    return flow.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def variables(compiled: Any) -> list[str]:
    return [buffer.name for buffer in compiled.graph.job.variables()]


# Calls


def test_a_traced_function_runs_as_a_graph() -> None:
    calls: list[int] = []

    def f(x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        calls.append(1)
        return (x * y).exp() - x

    traced = nn.Graph.trace(f)
    for seed in range(3):
        x, y = values(3, 4, seed=seed), values(4, seed=seed + 10)
        equal(traced(x, y), (x * y).exp() - x)
    assert len(calls) == 1
    assert [op.op for op in computing(traced.graph.job)] == ["mul", "exp", "sub"]


def test_the_decorator_without_arguments_predicts() -> None:
    @flow.global_function
    def double(x: flow.Tensor) -> flow.Tensor:
        return x * 2

    @flow.global_function()
    def triple(x: flow.Tensor) -> flow.Tensor:
        return x * 3

    equal(double(values(3)), values(3) * 2)
    equal(triple(values(3)), values(3) * 3)
    assert double.graph.name.startswith("double_")


class Pair(NamedTuple):
    first: flow.Tensor
    second: flow.Tensor


def test_nested_arguments_and_results() -> None:
    @flow.global_function(type="predict")
    def f(pair: Pair, more: dict[str, list[flow.Tensor]], *, scale: float) -> dict[str, Any]:
        return {"sum": pair.first + pair.second, "rest": [more["a"][0] * scale, (more["a"][1],)], "scale": scale}

    x, y = values(2, 2), values(2, 2, seed=1)
    for scale in (2.0, 3.0, 2.0):
        found = f(Pair(x, y), {"a": [x, y]}, scale=scale)
        equal(found["sum"], x + y)
        equal(found["rest"][0], x * scale)
        equal(found["rest"][1][0], y)
        assert found["scale"] == scale


def test_other_shapes_make_another_graph() -> None:
    built: list[tuple[int, ...]] = []

    @flow.global_function
    def f(x: flow.Tensor) -> flow.Tensor:
        built.append(tuple(x.shape))
        return x.sum(0)

    for rows in (1, 2, 1, 3, 2):
        x = values(rows, 3, seed=rows)
        equal(f(x), x.sum(0))
    assert built == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", "b"),
        (None, 0),
        (np.float32(1), np.float64(1)),
    ],
)
def test_arguments_other_than_tensors_are_part_of_the_graph(one: Any, other: Any) -> None:
    seen: list[Any] = []

    @flow.global_function
    def f(x: flow.Tensor, value: Any) -> flow.Tensor:
        seen.append(value)
        return x + 0

    for value in (one, other, one):
        f(values(2), value)
    assert len(seen) == 2
    assert seen[0] is one
    assert seen[1] is other


def test_nan_is_the_same_nan() -> None:
    seen: list[float] = []

    @flow.global_function
    def f(x: flow.Tensor, value: float) -> flow.Tensor:
        seen.append(value)
        return x + value

    for value in (float("nan"), float("nan")):
        f(values(2), value)
    assert len(seen) == 1


def test_arrays_become_tensors() -> None:
    @flow.global_function
    def f(x: flow.Tensor, rest: list[flow.Tensor]) -> flow.Tensor:
        return x + rest[0]

    one, other = np.arange(3.0), np.ones(3)
    for add in range(3):
        found = f(one + add, [other])
        assert found.dtype is flow.float64
        np.testing.assert_array_equal(found.numpy(), one + add + 1)


def test_a_shape_stays_a_size() -> None:
    @flow.global_function
    def f(x: flow.Tensor, shape: Any) -> Any:
        return x * shape.numel()

    equal(f(values(3), flow.ones(2, 3).shape), values(3) * 6)


def test_a_compiled_function_in_another_is_part_of_it() -> None:
    @flow.global_function
    def inner(x: flow.Tensor) -> flow.Tensor:
        return x * 2

    @flow.global_function
    def outer(x: flow.Tensor) -> Any:
        return inner(x) + 1

    equal(outer(values(3)), values(3) * 2 + 1)
    assert not inner.graph.is_compiled


def test_a_module_can_be_traced() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    traced = nn.Graph.trace(model)
    equal(traced(values(5, 3)), model(values(5, 3)))
    assert variables(traced) == ["module.0.weight", "module.0.bias", "module.2.weight", "module.2.bias"]


# Names


def test_modules_that_a_function_closes_over_keep_its_names_for_them() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    offset = values(2)
    heads = [nn.Linear(2, 2)]

    @flow.global_function
    def f(x: flow.Tensor) -> Any:
        return heads[0](model(x)) + offset

    x = values(5, 3)
    equal(f(x), heads[0](model(x)) + offset)
    assert sorted(variables(f)) == sorted(
        ["model.0.weight", "model.0.bias", "model.1.weight", "model.1.bias", "heads.0.weight", "heads.0.bias", "offset"]
    )
    assert {op.module for op in f.graph.job.ops} == {"model.0", "model.1", "heads.0", ""}
    with flow.no_grad():
        model[0].weight.mul_(2)
        offset.add_(1)
    equal(f(x), heads[0](model(x)) + offset)


class Hidden(nn.Module):
    """With modules that it does not know to be its own."""

    def __init__(self) -> None:
        super().__init__()
        self.known = nn.Linear(3, 3)
        self.__dict__["hidden"] = [nn.Linear(3, 3), nn.Linear(3, 3)]

    def forward(self, x: flow.Tensor) -> Any:
        for layer in self.__dict__["hidden"]:
            x = layer(x)
        return self.known(x)


def test_modules_are_named_when_they_are_met() -> None:
    def apply(model: nn.Module, x: flow.Tensor) -> Any:
        return model(x)

    class Meets(nn.Graph):
        def __init__(self, functions: list[Callable[[flow.Tensor], flow.Tensor]]) -> None:
            super().__init__()
            self.functions = functions

        def build(self, x: flow.Tensor) -> flow.Tensor:
            for function in self.functions:
                x = function(x)
            return x

    models = [Hidden(), Hidden()]
    graph = Meets([lambda x: apply(models[0], x), lambda x: apply(models[1], x)])
    x = values(2, 3)
    equal(graph(x), models[1](models[0](x)))
    names = [buffer.name for buffer in graph.job.variables()]
    assert names == [
        f"hidden_{model}.{layer}.{kind}"
        for model in (0, 1)
        for layer in ("linear_0", "linear_1", "known")
        for kind in ("weight", "bias")
    ]
    assert {op.module for op in computing(graph.job)} == {name.rpartition(".")[0] for name in names}


def test_gradients_of_modules_that_are_met_are_added_to() -> None:
    layer, free = nn.Linear(3, 1), values(3).requires_grad_()
    layer.weight.grad = before = flow.ones(1, 3)

    class Backward(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            loss = layer(x * free).sum()
            loss.backward()
            assert layer.weight.grad is not None
            return layer.weight.grad

    x = values(2, 3)
    graph = Backward()
    found = graph(x)
    gradient = (x * free).detach().sum(0, keepdim=True)
    equal(found, gradient)
    graph(x)
    equal(found, gradient)  # adding to `grad` must not change the returned gradient
    assert layer.weight.grad is before
    equal(before, 1 + gradient + gradient)
    assert layer.bias.grad is not None
    assert layer.bias.grad.tolist() == [4.0]
    assert free.grad is not None
    equal(free.grad, 2 * (x * layer.weight).detach().sum(0))


# Methods


class Scaler:
    def __init__(self, factor: float) -> None:
        self.factor = flow.tensor(factor)
        self.layer = nn.Linear(2, 2)

    @flow.global_function
    def apply(self, x: flow.Tensor) -> Any:
        """Scale it."""
        return self.layer(x) * self.factor

    @staticmethod
    @flow.global_function
    def twice(x: flow.Tensor) -> flow.Tensor:
        return x * 2

    @classmethod
    @flow.global_function
    def named(cls, x: flow.Tensor) -> dict[str, flow.Tensor]:
        return {cls.__name__: x + 1}


def test_a_method_has_a_graph_for_each_object() -> None:
    one, other = Scaler(2.0), Scaler(3.0)
    x = values(3, 2)
    for _ in range(2):
        equal(one.apply(x), one.layer(x) * 2)
        equal(other.apply(x), other.layer(x) * 3)
    assert one.apply.graph is one.apply.graph
    assert one.apply.graph is not other.apply.graph
    assert variables(one.apply) == ["self.layer.weight", "self.layer.bias", "self.factor"]
    equal(Scaler.apply(one, x), one.layer(x) * 2)
    equal(one.twice(x), x * 2)
    equal(Scaler.twice(x), x * 2)
    equal(one.named(x)["Scaler"], x + 1)


def test_a_module_in_a_class_is_no_method() -> None:
    class Activated:
        relu = nn.Graph.trace(nn.ReLU())

    assert Activated().relu is Activated.relu
    assert Activated().relu(flow.tensor([-1.0, 2.0])).tolist() == [0, 2]


@pytest.mark.usefixtures("collected")
def test_an_object_goes_with_its_graphs() -> None:
    scaler = Scaler(2.0)
    scaler.apply(values(3, 2)).numpy()
    layer, graph = weakref.ref(scaler.layer.weight), weakref.ref(scaler.apply.graph)
    del scaler
    gc.collect()
    assert layer() is None
    assert graph() is None


def test_it_looks_like_the_function() -> None:
    apply = Scaler.__dict__["apply"]
    assert isinstance(apply, CompiledFunction)
    assert apply.__name__ == "apply"
    assert apply.__doc__ == "Scale it."
    assert apply.__wrapped__.__name__ == "apply"
    assert repr(apply) == "<compiled function apply, type='predict'>"
    assert Scaler.apply is apply


def test_objects_without_weak_references_are_refused() -> None:
    class Slotted:
        __slots__ = ()

        @flow.global_function
        def f(self, x: flow.Tensor) -> flow.Tensor:
            return x

    with pytest.raises(TypeError, match="add '__weakref__' to the __slots__ of Slotted"):
        Slotted().f(values(2))


# Training


def trained(steps: int, compiled: bool) -> tuple[list[Any], nn.Module, flow.optim.Optimizer, Any]:
    flow.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = flow.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    losses: list[Any] = []

    def loss_of(x: flow.Tensor, y: flow.Tensor) -> tuple[flow.Tensor, flow.Tensor]:
        prediction = model(x)
        return ((prediction - y) ** 2).mean(), prediction

    step: Any = loss_of
    if compiled:
        step = flow.global_function("train", optimizer=optimizer, lr_scheduler=schedule)(loss_of)
    for seed in range(steps):
        loss, prediction = step(values(5, 4, seed=seed), values(5, 1, seed=seed + 100))
        if not compiled:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        losses.append((loss.detach().numpy(), prediction.detach().numpy()))
    return losses, model, optimizer, schedule


def test_a_train_function_takes_the_steps_that_eager_code_does() -> None:
    found, model, optimizer, schedule = trained(6, compiled=True)
    wanted, eager_model, _, eager_schedule = trained(6, compiled=False)
    for (loss, prediction), (eager_loss, eager_prediction) in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(loss, eager_loss)
        np.testing.assert_array_equal(prediction, eager_prediction)
    for one, other in zip(model.parameters(), eager_model.parameters(), strict=True):
        equal(one, other)
        assert one.grad is None
    assert schedule.get_last_lr() == eager_schedule.get_last_lr()
    assert optimizer.param_groups[0]["lr"] == eager_schedule.get_last_lr()[0]


def test_a_train_function_trains_under_no_grad_too() -> None:
    weight = values(3).requires_grad_()
    before = weight.detach().numpy().copy()

    @flow.global_function("train", optimizer=flow.optim.SGD([weight], lr=1.0))
    def step(x: flow.Tensor) -> flow.Tensor:
        return (weight * x).sum()

    x = values(3, seed=1)
    with flow.no_grad():
        step(x)
    np.testing.assert_array_equal(weight.detach().numpy(), before - x.numpy())


def test_several_optimizers() -> None:
    one, other = values(3).requires_grad_(), values(3, seed=1).requires_grad_()
    before = [tensor.detach().numpy().copy() for tensor in (one, other)]
    optimizers = [flow.optim.SGD([one], lr=1.0), flow.optim.SGD([other], lr=2.0)]
    schedule = flow.optim.lr_scheduler.StepLR(optimizers[1], step_size=1, gamma=0.5)

    @flow.global_function("train", optimizer=optimizers, lr_scheduler=[None, schedule])
    def step() -> flow.Tensor:
        return one.sum() + other.sum()

    step()
    step()
    np.testing.assert_array_equal(one.detach().numpy(), before[0] - 1 - 1)
    np.testing.assert_array_equal(other.detach().numpy(), before[1] - 2 - 1)


def test_the_settings_are_the_graphs() -> None:
    config = GraphConfig()
    config.allow_fusion(False)

    @flow.global_function("predict", config)
    def f(x: flow.Tensor) -> flow.Tensor:
        return x

    assert f.graph.config is config
    direct: Any = flow.global_function(lambda x: x, config)  # type: ignore[call-overload]
    assert direct.graph.config is config


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (lambda x: x, ValueError, "must be one number, not a tensor of the shape \\(3,\\)"),
        (lambda x: {"loss": x.sum()}, TypeError, "returned a dict"),
        (lambda x: None, TypeError, "returned None"),
        (lambda x: (), TypeError, "returned a tuple"),
        (lambda x: x.detach().sum(), ValueError, "does not depend on anything that requires a gradient"),
    ],
)
def test_a_train_function_must_return_the_loss(result: Any, error: type[Exception], message: str) -> None:
    weight = values(3).requires_grad_()
    optimizer = flow.optim.SGD([weight], lr=0.1)

    @flow.global_function("train", optimizer=optimizer)
    def step(x: flow.Tensor) -> Any:
        return result(x * weight)

    with pytest.raises(error, match=message):
        step(values(3))
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert weight.grad is None
    assert not step.graph.is_compiled


def test_a_train_function_is_not_called_while_another_graph_is_built() -> None:
    weight = values(3).requires_grad_()

    @flow.global_function("train", optimizer=flow.optim.SGD([weight], lr=0.1))
    def step(x: flow.Tensor) -> flow.Tensor:
        return (x * weight).sum()

    @flow.global_function
    def outer(x: flow.Tensor) -> Any:
        return step(x)

    with pytest.raises(RuntimeError, match="takes steps of its optimizer, and cannot be called while 'outer_"):
        outer(values(3))


# Refused functions


async def coroutine(x: flow.Tensor) -> flow.Tensor:
    return x


async def asynchronous_generator(x: flow.Tensor) -> AsyncIterator[flow.Tensor]:
    yield x


def generator(x: flow.Tensor) -> Iterator[flow.Tensor]:
    yield x


class AsynchronousCall:
    async def __call__(self, x: flow.Tensor) -> flow.Tensor:
        return x


@pytest.mark.parametrize("decorator", [nn.Graph.trace, flow.global_function, flow.global_function()])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (coroutine, "coroutine is a coroutine function, .*await its results"),
        (asynchronous_generator, "is a coroutine function"),
        (AsynchronousCall(), "AsynchronousCall is a coroutine function"),
        (generator, "generator is a generator; return a list"),
        (staticmethod(lambda x: x), "put @staticmethod above the decorator"),
        (nn.Graph.trace(lambda x: x), "is a graph already"),
        (nn.Linear, "expected a function of tensors, got a type"),
    ],
)
def test_functions_that_cannot_be_compiled_are_refused(decorator: Any, function: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        decorator(function)


def test_objects_that_are_no_functions_are_refused() -> None:
    with pytest.raises(TypeError, match="got a int"):
        flow.global_function()(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="put @classmethod above"):
        nn.Graph.trace(classmethod(lambda cls: cls))  # type: ignore[arg-type]


def test_the_decorator_refuses_wrong_arguments() -> None:
    weight = values(3).requires_grad_()
    optimizer = flow.optim.SGD([weight], lr=0.1)
    other = flow.optim.SGD([weight], lr=0.1)
    schedule = flow.optim.lr_scheduler.StepLR(other, step_size=1)
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (ValueError, "not 'eval'", lambda: flow.global_function("eval")),  # type: ignore[call-overload]
        (ValueError, "needs an optimizer", lambda: flow.global_function("train")),
        (ValueError, "only the type", lambda: flow.global_function("predict", optimizer=optimizer)),
        (ValueError, "only the type", lambda: flow.global_function(lr_scheduler=schedule)),
        (ValueError, "only the type", lambda: flow.global_function(values, optimizer=optimizer)),  # type: ignore[call-overload]
        (TypeError, "expected an optimizer", lambda: flow.global_function("train", optimizer=3)),  # type: ignore[call-overload]
        (ValueError, "scheduler of this", lambda: _train(optimizer, schedule)),
        (ValueError, "1 optimizers and 2 schedulers", lambda: _train(optimizer, [schedule, schedule])),
        (ValueError, "2 optimizers and 1 schedulers", lambda: _train([other, optimizer], schedule)),
        (TypeError, "the type comes first", lambda: flow.global_function(GraphConfig())),  # type: ignore[call-overload]
        (TypeError, "not a dict", lambda: flow.global_function("predict", {})),  # type: ignore[call-overload]
    ]
    for error, message, call in wrong:
        with pytest.raises(error, match=message):
            call()


def _train(optimizer: Any, schedule: Any) -> Any:
    return flow.global_function("train", optimizer=optimizer, lr_scheduler=schedule)


def test_its_graph_cannot_be_called_before_it_was_built() -> None:
    @flow.global_function
    def f(x: flow.Tensor) -> flow.Tensor:
        return x + 1

    with pytest.raises(RuntimeError, match="call the function itself"):
        f.graph(values(3))
    f(values(3))
    equal(f.graph(values(3)), values(3) + 1)
    equal(f.graph.run_by_vm(values(3)), values(3) + 1)


def test_building_is_all_or_nothing() -> None:
    broken = [True]

    @flow.global_function
    def f(x: flow.Tensor) -> flow.Tensor:
        if broken:
            raise LookupError("on purpose")
        return x + 1

    with pytest.raises(LookupError, match="on purpose"):
        f(values(3))
    assert not f.graph.is_compiled
    broken.clear()
    equal(f(values(3)), values(3) + 1)
