"""`nn.Graph` as users see it: building, arguments, training, sharing, and errors where they are made."""

from __future__ import annotations

import copy
import math
import pickle
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from tests.vm.gates import entered
from vmflow import nn
from vmflow.context import MODE
from vmflow.vm.virtual_machine import VirtualMachine

from .support import Of, Train, assert_same, check_in_graph

Pair = namedtuple("Pair", ["left", "right"])


# The documented example


class MyLinear(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(flow.randn(in_features, out_features))
        self.bias = nn.Parameter(flow.randn(out_features))

    def forward(self, input: flow.Tensor) -> flow.Tensor:
        return flow.matmul(input, self.weight) + self.bias


linear_model = MyLinear(4, 3)


class GraphMyLinear(nn.Graph):
    def __init__(self) -> None:
        super().__init__()
        self.model = linear_model

    def build(self, input: flow.Tensor) -> Any:
        return self.model(input)


def test_the_documented_example(capsys: pytest.CaptureFixture[str]) -> None:
    linear_model.to(flow.empty(0).device)
    graph_mylinear = GraphMyLinear()
    input = flow.randn(1, 4)
    out = graph_mylinear(input)
    print(out)
    print(graph_mylinear)
    said = capsys.readouterr().out
    assert_same(out, linear_model(input))
    assert out.shape == (1, 3)
    for part in (
        "GraphMyLinear_0",
        "(MODULE:model:MyLinear()",
        "(PARAMETER:model.weight:",
        "model.matmul",
        "model.add",
    ):
        assert part in said
    assert graph_mylinear.name.startswith("GraphMyLinear_")
    assert graph_mylinear.is_compiled


# Training


def mlp(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), *more, nn.ReLU(), nn.Linear(16, 3))


def loss_of(model: Any, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
    return nn.functional.cross_entropy(model(x), y)


def batches(count: int, seed: int = 0) -> list[tuple[flow.Tensor, flow.Tensor]]:
    random = np.random.default_rng(seed)
    return [
        (flow.tensor(random.standard_normal((8, 6)).astype(np.float32)), flow.tensor(random.integers(0, 3, 8)))
        for _ in range(count)
    ]


def copy_of(model: nn.Module, make: Callable[[], nn.Module]) -> nn.Module:
    other = make()
    other.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
    return other


def eager_steps(
    model: Any, optimizer: Any, schedule: Any, data: Any, loss: Callable[..., flow.Tensor] = loss_of
) -> Any:
    losses = []
    for batch in data:
        value = loss(model, *batch)
        optimizer.zero_grad()
        value.backward()
        if any(group.get("clip_grad_max_norm") is not None for group in optimizer.param_groups):
            optimizer.clip_grad()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        losses.append(value.item())
    return losses


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda x: flow.optim.SGD(x, lr=0.1),
    "momentum": lambda x: flow.optim.SGD(x, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda x: flow.optim.Adam(x, lr=0.01),
    "amsgrad": lambda x: flow.optim.Adam(x, lr=0.01, amsgrad=True),
    "adamw": lambda x: flow.optim.AdamW(x, lr=0.01),
    "adagrad": lambda x: flow.optim.Adagrad(x, lr=0.1, lr_decay=0.1),
    "adadelta": lambda x: flow.optim.Adadelta(x),
    "rmsprop": lambda x: flow.optim.RMSprop(x, lr=0.01, momentum=0.5, centered=True),
    "nadam": lambda x: flow.optim.NAdam(x, lr=0.01),
    "radam": lambda x: flow.optim.RAdam(x, lr=0.01),
    "adamax": lambda x: flow.optim.Adamax(x, lr=0.01),
    "rprop": lambda x: flow.optim.Rprop(x, lr=0.01),
    "lamb": lambda x: flow.optim.LAMB(x, lr=0.01),
    "lr_tensor": lambda x: flow.optim.SGD(x, lr=flow.tensor(0.1)),
    "groups": lambda x: flow.optim.Adam([{"params": list(x)[:2], "lr": 0.05}, {"params": list(x)[2:]}], lr=0.01),  # type: ignore[arg-type]
    "clipped": lambda x: flow.optim.SGD([{"params": x, "clip_grad_max_norm": 0.1}], lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_with_each_optimizer_is_as_eager_training(name: str) -> None:
    if name == "lamb" and not hasattr(flow.optim, "LAMB"):
        pytest.skip("has no such name")
    model = mlp()
    twin = copy_of(model, mlp)
    data = batches(6)
    graph = Train(model, loss_of, OPTIMIZERS[name](list(model.parameters())))
    found = [graph(*batch).item() for batch in data[:4]] + [graph.run_by_vm(*batch).item() for batch in data[4:]]
    assert found == eager_steps(twin, OPTIMIZERS[name](list(twin.parameters())), None, data)
    assert_same(dict(model.state_dict()), dict(twin.state_dict()))
    assert all(parameter.grad is None for parameter in model.parameters())


LR = flow.optim.lr_scheduler
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "cosine": lambda x: LR.CosineAnnealingLR(x, T_max=6),
    "linear": lambda x: LR.LinearLR(x, start_factor=0.2, total_iters=4),
    "step": lambda x: LR.StepLR(x, step_size=2, gamma=0.5),
    "exponential": lambda x: LR.ExponentialLR(x, gamma=0.8),
    "lambda": lambda x: LR.LambdaLR(x, lambda step: 1 / (step + 1)),
    "one_cycle": lambda x: LR.OneCycleLR(x, max_lr=0.3, total_steps=10, cycle_momentum=False),
    "restarts": lambda x: LR.CosineAnnealingWarmRestarts(x, T_0=2),
    "sequence": lambda x: LR.SequentialLR(
        x, [LR.ConstantLR(x, factor=0.1, total_iters=2), LR.ExponentialLR(x, gamma=0.9)], milestones=[2]
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_learning_rates_follow_the_schedule(name: str) -> None:
    model = mlp()
    twin = copy_of(model, mlp)
    data = batches(6)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    other = flow.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    graph = Train(model, loss_of, optimizer, SCHEDULES[name](optimizer))
    found = []
    for batch in data:
        found.append(graph(*batch).item())
        assert all(isinstance(group["lr"], float) for group in optimizer.param_groups)
    assert found == eager_steps(twin, other, SCHEDULES[name](other), data)
    assert optimizer.param_groups[0]["lr"] == other.param_groups[0]["lr"]
    # A rate that is changed by hand between two calls holds as well.
    optimizer.param_groups[0]["lr"] = other.param_groups[0]["lr"] = 0.007
    graph(*data[0])
    eager_steps(twin, other, None, data[:1])
    assert_same(dict(model.state_dict()), dict(twin.state_dict()))


def test_other_settings_of_optimizers_are_part_of_the_graph() -> None:
    """This schedule changes the momentum as well: each call builds the graph anew."""
    model = mlp()
    twin = copy_of(model, mlp)
    optimizer, other = [flow.optim.SGD(value.parameters(), lr=0.1, momentum=0.9) for value in (model, twin)]
    schedule, same = [LR.OneCycleLR(value, max_lr=0.3, total_steps=10) for value in (optimizer, other)]
    graph = Train(model, loss_of, optimizer, schedule)
    data = batches(3)
    assert [graph(*batch).item() for batch in data] == eager_steps(twin, other, same, data)
    assert optimizer.param_groups[0]["momentum"] == other.param_groups[0]["momentum"] != 0.9
    assert_same(dict(model.state_dict()), dict(twin.state_dict()))


def test_several_optimizers_each_take_a_step() -> None:
    model = mlp()
    twin = copy_of(model, mlp)

    def two(it: Any) -> list[Any]:
        return [flow.optim.SGD(it[0].parameters(), lr=0.1), flow.optim.Adam(it[2].parameters(), lr=0.02)]

    class Both(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            first, second = two(model)
            self.add_optimizer(first, lr_sch=LR.ExponentialLR(first, gamma=0.5))
            self.add_optimizer(second)

        def build(self, x: flow.Tensor, y: flow.Tensor) -> Any:
            loss = loss_of(self.model, x, y)
            loss.backward()
            return loss

    graph = Both()
    graph.config.allow_fusion(False)
    first, second = two(twin)
    schedule = LR.ExponentialLR(first, gamma=0.5)
    for batch in batches(4):
        found = graph(*batch)
        loss = loss_of(twin, *batch)
        twin.zero_grad()
        loss.backward()
        first.step()
        second.step()
        schedule.step()
        assert_same(found, loss)


def test_a_train_and_an_eval_graph_share_a_module() -> None:
    model = mlp(nn.BatchNorm1d(16), nn.Dropout(0.3))
    train = Train(model, loss_of, flow.optim.SGD(model.parameters(), lr=0.1))
    predict = Of(model, model)
    predict.config.allow_fusion(False)
    x = batches(1, seed=9)[0][0]
    seen = []
    for batch in batches(4):
        model.train()
        train(*batch)
        model.eval()
        seen.append(predict(x))
        assert_same(seen[-1], model(x))
    assert len({tensor.detach().numpy().tobytes() for tensor in seen}) == 4


def test_eager_gradients_are_not_touched() -> None:
    model = mlp()
    loss_of(model, *batches(1)[0]).backward()
    before = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
    kept = [parameter.grad for parameter in model.parameters()]
    graph = Train(model, loss_of, flow.optim.SGD(model.parameters(), lr=0.1))
    for batch in batches(3):
        graph(*batch)
    assert all(
        one is other for one, other in zip([parameter.grad for parameter in model.parameters()], kept, strict=True)
    )
    assert_same(kept, before)


def test_state_is_saved_and_training_goes_on_exactly() -> None:
    data = batches(8)

    def make(model: nn.Module) -> Train:
        optimizer = flow.optim.Adam(model.parameters(), lr=0.02)
        return Train(model, loss_of, optimizer, LR.CosineAnnealingLR(optimizer, T_max=8))

    model = mlp()
    graph = make(model)
    for batch in data[:4]:
        graph(*batch)
    state = graph.state_dict()
    assert sorted(state) == ["lr_sch0", "model", "optimizer0"]
    other_model = mlp()
    other = make(other_model)
    other(*data[0])  # built with a state of its own, which is to be forgotten
    other.load_state_dict(state)
    for batch in data[4:]:
        assert_same(other(*batch), graph(*batch))
    assert_same(dict(other_model.state_dict()), dict(model.state_dict()))
    with pytest.raises(KeyError, match="'model' is missing"):
        other.load_state_dict({name: value for name, value in state.items() if name != "model"})
    with pytest.raises(KeyError, match="'more' is not part of the graph"):
        other.load_state_dict({**state, "more": {}})


def test_no_module_is_loaded_if_the_state_of_another_does_not_fit() -> None:
    class Two(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    graph = Two()
    before = graph.state_dict()
    values = {name: value.clone() for name, value in before["first"].items()}
    state = {"first": nn.Linear(2, 2).state_dict(), "second": nn.Linear(3, 2).state_dict()}
    with pytest.raises(RuntimeError, match=r"nothing was loaded:\n    'second.weight': shape \[2, 3\] does not fit"):
        graph.load_state_dict(state)
    assert_same(dict(graph.state_dict()["first"]), values)
    with pytest.raises(TypeError, match="expected a dict of tensors for 'second', got int"):
        graph.load_state_dict({**state, "second": 3})  # type: ignore[dict-item]


# Arguments and results


@pytest.mark.parametrize("call", [lambda x, y: x + flow.exp(y), lambda x, y: flow.matmul(x, y), lambda x, y: x.mul_(y)])
def test_operands_that_are_no_tensors_are_refused_in_build_as_in_eager_code(call: Any) -> None:
    array = np.zeros(2, np.float32)
    with pytest.raises(TypeError) as eager:
        call(flow.ones(2), array)
    with pytest.raises(TypeError) as built:
        nn.Graph.trace(lambda x: call(x * 1, array))(flow.ones(2))
    assert str(built.value).splitlines()[0] == str(eager.value).splitlines()[0]


def test_arrays_given_to_a_compiled_function_in_build_become_tensors() -> None:
    inner = nn.Graph.trace(lambda x, y: x + flow.exp(y[0]))
    graph = nn.Graph.trace(lambda x: inner(x, [np.zeros(2, np.float32)]))
    assert graph(flow.ones(2)).tolist() == [2.0, 2.0]


def test_nested_arguments_and_results() -> None:
    def call(first: Any, pair: Any, *, options: Any, scale: float = 1.0) -> Any:
        total = first["a"] + first["b"][0] * first["b"][1] + pair.left
        if options["negate"]:
            total = -total
        return {"total": total * scale, "both": [total, (pair.right, "text")], "pair": Pair(total, None)}, 3

    def given() -> tuple[Any, Any]:
        x = [flow.full((2, 3), float(index)) for index in range(5)]
        return ({"a": x[0], "b": [x[1], x[2]]}, Pair(x[3], x[4])), {"options": {"negate": True}, "scale": 0.5}

    args, kwargs = given()
    graph = Of(call)
    expected, (found, number) = call(*args, **kwargs)[0], graph(*args, **kwargs)
    assert number == 3
    assert isinstance(found["pair"], Pair)
    assert found["pair"].right is None
    assert isinstance(found["both"], list)
    assert isinstance(found["both"][1], tuple)
    assert found["both"][1][1] == "text"
    assert_same(found, expected)
    args[0]["a"].add_(1)
    assert_same(graph(*args, **kwargs)[0], call(*args, **kwargs)[0])


def test_later_calls_must_fit() -> None:
    graph = Of(lambda x, *rest, **more: x * 2)
    x = flow.ones(2, 3)
    graph(x, [x, 1], mode="a", extra={"m": x})
    again = {"mode": "a", "extra": {"m": x}}
    for args, kwargs, said in (
        ((flow.ones(2, 4), [x, 1]), again, r"args\[0\] was float32\[2, 3\].*is float32\[2, 4\]"),
        ((x.double(), [x, 1]), again, r"args\[0\] was float32\[2, 3\].*is float64\[2, 3\]"),
        ((x, [x, 2]), again, r"args\[1\]\[1\] was 1 when the graph was built, and is 2"),
        ((x, (x, 1)), again, r"args\[1\] was a list of 2 .* is a tuple of 2"),
        ((x, [x]), again, r"args\[1\] was a list of 2 .* is a list of 1"),
        ((x, [x, 1], x), again, r"args was a tuple of 2 .* is a tuple of 3"),
        ((x, [1, 1]), again, r"args\[1\]\[0\] was a tensor .* is 1"),
        ((x, [x, 1]), {**again, "mode": "b"}, r"kwargs\['mode'\] was 'a' .* is 'b'"),
        ((x, [x, 1]), {"mode": "a", "extra": {"n": x}}, r"kwargs\['extra'\] was a dict with the keys \['m'\]"),
        ((x, [x, 1]), {"mode": "a"}, r"kwargs was a dict with the keys \['extra', 'mode'\]"),
    ):
        with pytest.raises(ValueError, match=said) as found:
            graph(*args, **kwargs)
        assert "with_dynamic_input_shape" in str(found.value)
    assert_same(graph(x, [x, 1], **again), x * 2)


@pytest.mark.host
def test_the_device_of_arguments_is_checked() -> None:
    graph = Of(lambda x: x * 2)
    graph(flow.ones(2))
    with pytest.raises(ValueError, match=r"on cpu.*on sim"):
        graph(flow.ones(2, device="sim"))


def test_fixed_arguments_may_be_arrays_and_keywords_in_any_order() -> None:
    table = np.arange(3.0, dtype=np.float32)
    graph = Of(lambda x, **more: x + flow.tensor(more["table"]) * more["y"])
    x = flow.ones(3)
    first = graph(x, table=table, y=x)
    assert_same(graph(x, table=table.copy(), y=x), first)
    assert_same(graph(x, y=x, table=table), first)
    with pytest.raises(ValueError, match="table"):
        graph(x, table=table + 1, y=x)


def test_dynamic_shapes_build_anew_and_keep_the_latest() -> None:
    built = []

    def call(x: flow.Tensor) -> flow.Tensor:
        built.append(tuple(x.shape))
        return x.sum(0)

    graph = Of(call).with_dynamic_input_shape(size=2)
    for size in (2, 3, 2, 3, 4, 2):
        x = flow.randn(size, 3)
        assert_same(graph(x), x.sum(0))
    assert built == [(2, 3), (3, 3), (4, 3), (2, 3)][: len(built)] or built.count((2, 3)) > 1
    with pytest.raises(ValueError, match="at least 1"):
        graph.with_dynamic_input_shape(size=0)


def test_share_from() -> None:
    model = mlp()

    class Predict(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def build(self, x: flow.Tensor) -> Any:
            return self.model(x)

    first, second = Predict(), Predict()
    second.share_from(first)
    x = flow.randn(2, 6)
    assert_same(second(flow.randn(5, 6)).shape, flow.Size((5, 3)))
    assert_same(second._blocks is first._blocks, True)
    assert_same(first(x), model(x))
    with pytest.raises(RuntimeError, match="before the graph is built"):
        second.share_from(first)
    with pytest.raises(TypeError, match="expected a Predict"):
        Predict().share_from(Of(lambda x: x))


def test_a_block_is_as_true_as_its_module_and_equals_it() -> None:
    graph: Any = Of(lambda x: x, nn.Sequential(nn.ReLU(), nn.Sequential()))
    model = graph.module0
    assert model[0]  # of a module without __len__
    assert not model[1]
    assert model[0] == model[0] == model.origin[0]
    assert model[0] != model[1]
    assert {model[0]: "first", model: "all"}[model[0]] == "first"
    assert model[1] in model
    for copied in (copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert (copied.path, repr(copied)) == (model.path, repr(model))
    assert copy.copy(model) == model


def test_names_are_unique_and_is_compiled_says_whether_a_graph_is_built() -> None:
    one, other = Of(lambda x: x + 1), Of(lambda x: x + 1)
    assert one.name != other.name
    assert not one.is_compiled
    with pytest.raises(RuntimeError, match="no plan yet"):
        _ = one.plan
    one(flow.ones(2))
    assert one.is_compiled
    assert [op.op for op in one.job.ops] == ["FeedInput", "add_scalar", "FetchOutput"]
    assert one.job.name == one.name


def test_invalid_attributes_are_refused_with_the_reason() -> None:
    graph = Of(lambda x: x)
    with pytest.raises(TypeError, match=r"no state of its own.*parameter or buffer of a module"):
        graph.weight = flow.ones(2)
    with pytest.raises(TypeError, match="no state of its own"):
        graph.weight = nn.Parameter(flow.ones(2))
    with pytest.raises(TypeError, match="add_optimizer"):
        graph.optimizer = flow.optim.SGD(mlp().parameters(), lr=0.1)
    optimizer = flow.optim.SGD(mlp().parameters(), lr=0.1)
    with pytest.raises(TypeError, match="expected an optimizer"):
        graph.add_optimizer(mlp())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="LBFGS"):
        graph.add_optimizer(flow.optim.LBFGS(mlp().parameters()))
    other = flow.optim.SGD(mlp().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="of this optimizer"):
        graph.add_optimizer(optimizer, lr_sch=LR.StepLR(other, 1))
    graph(flow.ones(2))
    with pytest.raises(RuntimeError, match="before the graph is built"):
        graph.add_optimizer(optimizer)

    class Early(nn.Graph):
        def __init__(self) -> None:
            self.model = mlp()

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\)"):
        Early()
    with pytest.raises(NotImplementedError, match="defines no build"):
        nn.Graph()(flow.ones(1))


# Building


@pytest.mark.parametrize("known", [False, True], ids=["fresh", "with_state"])
def test_a_failed_build_leaves_no_trace(known: bool) -> None:
    model = mlp(nn.BatchNorm1d(16), nn.Dropout(0.5))
    optimizer = flow.optim.Adam(model.parameters(), lr=0.1)
    loss_of(model, *batches(1)[0]).backward()
    if known:
        optimizer.step()
    fails = True

    def loss(model: Any, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        value = loss_of(model, x, y)
        if fails:
            value.backward()
            raise KeyError("in build")
        return value

    schedule = LR.StepLR(optimizer, 1)
    graph = Train(model, loss, optimizer, schedule)
    mode = MODE.get()
    gradients = [entry.grad for entry in model.parameters()]
    values = {name: entry.clone() for name, entry in model.state_dict().items()}
    state = {
        entry: {name: (value, value.clone()) for name, value in optimizer.state[entry].items()}
        for entry in optimizer.state
    }
    versions = [entry._blob.storage.version for entry in model.state_dict().values()]
    random = flow.get_rng_state().numpy().tobytes()
    with pytest.raises(KeyError, match="in build"):
        graph(*batches(1)[0])
    assert MODE.get() is mode
    assert all(one is other for one, other in zip([entry.grad for entry in model.parameters()], gradients, strict=True))
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert schedule.last_epoch == 0
    assert optimizer.state.keys() == state.keys()
    for parameter, remembered in state.items():
        assert optimizer.state[parameter].keys() == remembered.keys()
        for name, (tensor, value) in remembered.items():
            assert optimizer.state[parameter][name] is tensor
            assert_same(tensor, value)
    assert flow.get_rng_state().numpy().tobytes() == random
    assert [entry._blob.storage.version for entry in model.state_dict().values()] == versions
    assert_same(dict(model.state_dict()), values)
    assert not graph.is_compiled
    fails = False
    twin = copy_of(model, lambda: mlp(nn.BatchNorm1d(16), nn.Dropout(0.5)))
    flow.manual_seed(4)
    found = graph(*batches(1)[0])
    flow.manual_seed(4)
    assert_same(found, loss_of(twin, *batches(1)[0]))


VALUED: dict[str, Callable[[flow.Tensor], Any]] = {
    "item": lambda x: x.sum().item(),
    "numpy": lambda x: x.detach().numpy(),
    "array": lambda x: np.asarray(x),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: 1 if x.sum() > 0 else 2,
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "index": lambda x: [1, 2, 3][x.sum().long()],
    "math": lambda x: math.exp(x.sum()),
    "in": lambda x: 3.0 in x,
    "format": lambda x: f"{x.sum():.3f}",
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "mask": lambda x: x[x > 0],
    "where": lambda x: flow.where(x > 0),
    "unique": lambda x: flow.unique(x),
    "repeat": lambda x: x.repeat_interleave((x > 0).long()),
    "one_hot": lambda x: nn.functional.one_hot(x.abs().long()),
    "range": lambda x: flow.arange(x.sum()),  # type: ignore[arg-type]
    "full": lambda x: flow.full((2,), x.sum()),
    "pickle": lambda x: __import__("pickle").dumps(x),
}


@pytest.mark.parametrize("name", VALUED)
def test_ops_that_need_values_are_refused_at_their_line(name: str) -> None:
    def call(x: flow.Tensor) -> Any:
        return VALUED[name](x + 1)

    graph = Of(call)
    with pytest.raises(RuntimeError, match=r"in graph .*while the graph is being built.*return the tensor"):
        graph(flow.ones(3))
    assert_same(Of(lambda x: x * 3)(flow.ones(3)), flow.full((3,), 3.0))


@pytest.mark.host
def test_shapes_may_depend_on_data_known_while_building() -> None:
    def call(x: flow.Tensor) -> Any:
        numbers = flow.tensor([3, 1, 3])
        values, counts = numbers.unique(return_counts=True)
        return x * values, x * counts, numbers.bincount() + x[0], x.repeat_interleave(flow.tensor([2, 1]))

    x = flow.tensor([1.0, 2.0])
    graph = Of(call)
    for _ in range(2):
        assert_same(graph(x), call(x))


async def test_waiting_in_build_is_refused() -> None:
    def call(x: flow.Tensor) -> Any:
        (x + 1).__await__().send(None)
        return x

    with pytest.raises(RuntimeError, match="while the graph is being built"):
        Of(call)(flow.ones(3))


def test_tensors_kept_from_a_build_are_refused() -> None:
    kept: list[flow.Tensor] = []

    def call(x: flow.Tensor) -> flow.Tensor:
        kept.append(x + 1)
        return x * 2

    graph = Of(call)
    result = graph(flow.ones(2))
    for use in (lambda x: x + 1, lambda x: flow.ones(2) * x, lambda x: x.add_(1), lambda x: x.sum()):
        with pytest.raises(RuntimeError, match="used outside of the graph's build"):
            use(kept[0])  # type: ignore[no-untyped-call]
    with pytest.raises(RuntimeError, match="graph"):
        kept[0].numpy()
    for other in (Of(lambda x: x + kept[0]), Of(lambda x: kept[0])):
        with pytest.raises(RuntimeError, match="used while building graph"):
            other(flow.ones(2))
    with pytest.raises(RuntimeError, match="graph"):
        graph(kept[0])
    assert_same(result, flow.full((2,), 2.0))


def test_tensors_of_closures_become_variables() -> None:
    scale = flow.full((3,), 2.0)
    whole = flow.arange(12, dtype=flow.float32).reshape(3, 4)
    column = whole[:, 1]
    graph = Of(lambda x: x * scale + column)
    x = flow.ones(3)
    for _ in range(3):
        assert_same(graph(x), x * scale + column)
        scale.add_(1)
        whole.mul_(2)
    assert sorted(variable.name for variable in graph.job.variables()) == ["free_0", "free_1"]


def test_a_graph_writes_its_variables() -> None:
    counter = flow.zeros(3)

    def call(x: flow.Tensor) -> flow.Tensor:
        counter.add_(x)
        counter[1:].mul_(2)
        return counter * 10

    graph = Of(call)
    expected = np.zeros(3, np.float32)
    for _ in range(3):
        found = graph(flow.ones(3))
        expected += 1
        expected[1:] *= 2
        np.testing.assert_array_equal(counter.numpy(), expected)
        np.testing.assert_array_equal(found.numpy(), expected * 10)


def test_results_do_not_change_with_variables_or_arguments() -> None:
    counter = flow.zeros(2)

    def call(x: flow.Tensor) -> Any:
        counter.add_(1)
        return counter, x, x[0]

    graph = Of(call)
    x = flow.ones(2)
    first = graph(x)
    x.add_(5)
    second = graph(x)
    x.add_(5)
    for found, want in zip((*first, *second), ([1, 1], [1, 1], 1, [2, 2], [6, 6], 6), strict=True):
        np.testing.assert_array_equal(found.numpy(), np.array(want, np.float32))


def test_arguments_changed_in_build() -> None:
    """The graph changes its copy, and not the caller's tensor."""

    def call(x: flow.Tensor) -> flow.Tensor:
        x.add_(1)
        x[0] = 7
        return x * 2

    graph = Of(call)
    x = flow.zeros(3)
    for _ in range(2):
        np.testing.assert_array_equal(graph(x).numpy(), [14, 2, 2])
        np.testing.assert_array_equal(x.numpy(), [0, 0, 0])


def _constants(x: flow.Tensor) -> Any:
    table = flow.tensor([1.0, 2.0, 3.0])
    table.add_(x)
    other = flow.tensor(np.arange(3.0, dtype=np.float32))
    part = other[1:]
    part.mul_(10)
    return table * 2, other + flow.zeros(3).fill_(4), flow.arange(3) + 1, table


def _views(x: flow.Tensor) -> Any:
    y = x * 1
    y.t()[0] = 5
    y[:, 1:].add_(1)
    z = y.view(-1)
    z[::2] = z[1::2]
    y.unsqueeze(0).expand(2, 4, 3)
    return y, z.reshape(3, 4).T, y.flip(0), y[[0, 2]], flow.cat([y, y.roll(1, 0)])


def _no_grad(x: flow.Tensor) -> Any:
    w = x.detach().requires_grad_()
    with flow.no_grad():
        constant = w * 2
    assert not constant.requires_grad
    (found,) = flow.autograd.grad((w * constant).sum(), [w])
    return found, constant


def _double(x: flow.Tensor) -> Any:
    w = x.detach().requires_grad_()
    (first,) = flow.autograd.grad((w**3).sum(), [w], create_graph=True)
    (second,) = flow.autograd.grad((first**2).sum(), [w])  # type: ignore[operator]
    return first, second


class Cubed(flow.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: flow.Tensor) -> flow.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: flow.Tensor) -> flow.Tensor:
        (x,) = ctx.saved_tensors
        # Not the true one, so that it is seen which was taken.
        return gradient * 5 * x**2  # type: ignore[no-any-return]


def _function(x: flow.Tensor) -> Any:
    w = x.detach().requires_grad_()
    y = Cubed.apply(w)
    y.sum().backward()
    return y, w.grad


def _twice(x: flow.Tensor) -> Any:
    w = x.detach().requires_grad_()
    shared = w.exp()
    shared.sum().backward(retain_graph=True)
    (shared * 2).sum().backward()
    return w.grad


def _tensor_hook(x: flow.Tensor) -> Any:
    w = x.detach().requires_grad_()
    y = w * 3
    y.register_hook(lambda gradient: gradient * 7)
    y.sum().backward()
    return w.grad


@pytest.mark.parametrize("call", [_constants, _views, _no_grad, _double, _function, _twice, _tensor_hook])
def test_programs(call: Callable[..., Any]) -> None:
    shape = (3,) if call is _constants else (4, 3)
    check_in_graph(call, lambda: [flow.arange(math.prod(shape), dtype=flow.float32).reshape(shape) / 3])


def test_a_constant_is_not_the_next_builds_or_runs() -> None:
    def call(x: flow.Tensor) -> flow.Tensor:
        total = flow.tensor([0.0, 0.0])
        for _ in range(3):
            total += x
        return total

    graph = Of(call)
    for _ in range(3):
        np.testing.assert_array_equal(graph(flow.ones(2)).numpy(), [3, 3])


# Layers


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], list[flow.Tensor]]]] = {
    "batch_norm": (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), lambda: [flow.randn(8, 6)]),
    "cumulative": (
        lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=None)),
        lambda: [flow.randn(8, 6)],
    ),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.4)), lambda: [flow.randn(8, 6)]),
    "embedding": (lambda: nn.Embedding(7, 4, padding_idx=0), lambda: [flow.randint(7, (3, 5))]),
    "embedding_bag": (lambda: nn.EmbeddingBag(7, 4), lambda: [flow.randint(7, (3, 5))]),
    "rnn": (lambda: nn.RNN(5, 4, 2, bidirectional=True), lambda: [flow.randn(6, 3, 5)]),
    "lstm": (lambda: nn.LSTM(5, 4, 2, dropout=0.3), lambda: [flow.randn(6, 3, 5)]),
    "gru": (lambda: nn.GRU(5, 4, batch_first=True), lambda: [flow.randn(3, 6, 5)]),
    "lstm_cell": (lambda: nn.LSTMCell(5, 4), lambda: [flow.randn(3, 5)]),
    "attention": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True),
        lambda: [flow.randn(2, 5, 8)],
    ),
    "conv": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        lambda: [flow.randn(2, 2, 6, 6)],
    ),
    "layer_norm": (lambda: nn.Sequential(nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 2)), lambda: [flow.randn(4, 6)]),
    "group_norm": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU()), lambda: [flow.randn(2, 4, 3)]),
    "weight_norm": (lambda: nn.utils.weight_norm(nn.Linear(6, 4)), lambda: [flow.randn(3, 6)]),
    "spectral_norm": (lambda: nn.utils.spectral_norm(nn.Linear(6, 4)), lambda: [flow.randn(3, 6)]),
}


def _mean_square(model: Any, *given: flow.Tensor) -> flow.Tensor:
    result = model(*given)
    result = result[0] if isinstance(result, tuple) else result
    return result.square().mean()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_train_as_eagerly(name: str) -> None:
    make, given = LAYERS[name]
    model = make()
    twin = copy_of(model, make)
    data = [given() for _ in range(3)]
    graph = Train(model, _mean_square, flow.optim.SGD(model.parameters(), lr=0.1))
    flow.manual_seed(5)
    found = [graph(*batch).item() for batch in data]
    flow.manual_seed(5)
    assert found == eager_steps(twin, flow.optim.SGD(twin.parameters(), lr=0.1), None, data, _mean_square)
    assert_same(dict(model.state_dict()), dict(twin.state_dict()))
    model.eval()
    twin.eval()
    predict = Of(model, model)
    predict.config.allow_fusion(False)
    assert_same(predict(*data[0]), twin(*data[0]))


def test_dropout_draws_anew_at_each_call() -> None:
    graph = Of(lambda x: nn.functional.dropout(x, 0.5))
    x = flow.ones(64)
    flow.manual_seed(1)
    found = [graph(x) for _ in range(3)]
    flow.manual_seed(1)
    assert_same(found, [nn.functional.dropout(x, 0.5) for _ in range(3)])
    assert found[0].numpy().tobytes() != found[1].numpy().tobytes()


def test_an_explicit_generator() -> None:
    generator = flow.Generator().manual_seed(3)
    graph = Of(lambda x: x + flow.rand(4, generator=generator))
    found = [graph(flow.zeros(4)) for _ in range(2)]
    generator.manual_seed(3)
    assert_same(found, [flow.zeros(4) + flow.rand(4, generator=generator) for _ in range(2)])


def test_module_hooks_run_once_at_the_build() -> None:
    model = mlp()
    called = []

    def hook(module: Any, args: Any, output: flow.Tensor) -> flow.Tensor:
        called.append(type(module).__name__)
        return output * 2

    handle = model[0].register_forward_hook(hook)
    graph = Of(model, model)
    x = flow.randn(2, 6)
    found = [graph(x), graph(x)]
    assert called == ["Linear"]
    assert_same(found, [model(x), model(x)])
    handle.remove()
    assert_same(graph(x), model(x))
    assert called == ["Linear"] * 3


def test_frozen_unused_and_tied_parameters() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(6, 6)
            self.tied = nn.Linear(6, 6)
            self.tied.weight = self.first.weight
            self.frozen = nn.Linear(6, 3).requires_grad_(False)
            self.unused = nn.Linear(2, 2)

        def forward(self, x: flow.Tensor) -> Any:
            return self.frozen(self.tied(self.first(x).tanh()))

    model = Odd()
    twin = copy_of(model, Odd)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    data = batches(4)
    graph = Train(model, loss_of, flow.optim.Adam(model.parameters(), lr=0.05))
    found = [graph(*batch).item() for batch in data]
    assert found == eager_steps(twin, flow.optim.Adam(twin.parameters(), lr=0.05), None, data)
    assert_same(dict(model.state_dict()), dict(twin.state_dict()))
    for name in ("frozen.weight", "frozen.bias", "unused.weight", "unused.bias"):
        assert_same(model.state_dict()[name], start[name])
    assert model.first.weight is model.tied.weight
    assert sorted(variable.name for variable in graph.job.variables() if "frozen" in variable.name) == [
        "model.frozen.bias",
        "model.frozen.weight",
    ]


def test_gradients_over_parts_add_up() -> None:
    def parts(model: Any, x: flow.Tensor, y: flow.Tensor) -> flow.Tensor:
        first = loss_of(model, x[:3], y[:3])
        first.backward()
        return loss_of(model, x[3:], y[3:])

    model = mlp()
    twin = copy_of(model, mlp)
    graph = Train(model, parts, flow.optim.SGD(model.parameters(), lr=0.1))
    for x, y in batches(3):
        found = graph(x, y)
        twin.zero_grad()
        loss_of(twin, x[:3], y[:3]).backward()
        loss = loss_of(twin, x[3:], y[3:])
        loss.backward()
        with flow.no_grad():
            for parameter in twin.parameters():
                parameter -= 0.1 * parameter.grad  # type: ignore[misc, operator]
        assert_same(found, loss)


def test_gradients_of_parameters_can_be_returned_and_arguments_may_require_them() -> None:
    model = mlp()

    def call(x: flow.Tensor) -> Any:
        loss = model(x).square().sum()
        loss.backward()
        return loss, [parameter.grad for parameter in model.parameters()]

    graph = Of(call, model)
    x = flow.randn(4, 6)
    loss, found = graph(x)
    assert_same([parameter.grad for parameter in model.parameters()], found)
    model.zero_grad()
    expected = model(x).square().sum()
    expected.backward()
    assert_same([loss, found], [expected, [value.grad for value in model.parameters()]])
    again = graph(x)[1]
    assert_same(again, found)


def test_results_have_no_history() -> None:
    model = mlp()
    found = Of(model, model)(flow.randn(2, 6))
    assert not found.requires_grad
    assert found.is_leaf


def test_data_dependent_errors_come_back_to_the_call_with_the_line_of_the_op() -> None:
    model = nn.Embedding(4, 2)
    graph = Of(lambda ids: model(ids).sum(), model)
    good, bad = flow.tensor([0, 3]), flow.tensor([0, 9])
    first = graph(good)
    with pytest.raises(IndexError) as found:
        graph(bad).item()
    assert any(graph.name in note for note in found.value.__notes__)
    assert any("test_graph.py" in note for note in found.value.__notes__)
    assert_same(graph(good), first)


async def test_results_are_awaited() -> None:
    graph = Of(lambda x: {"a": x + 1, "b": (x, x * 2)})
    x = flow.ones(3)
    expected = [x + 1, x, x * 2]
    found = await graph(x)
    assert found["a"].is_ready()
    await flow.synchronize()
    assert_same(found, expected)
    assert (await Of(lambda y: y * 2)(x)).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("how", ["__call__", "run_by_vm", "_compile"])
def test_a_graph_within_a_graph_is_refused_even_with_tensors_of_neither(how: str) -> None:
    inner, outside = Of(lambda x: x + 1), flow.ones(2)
    call = getattr(inner, how)
    for outer in Of(lambda x: call(x)), Of(lambda x: call(outside)):
        with pytest.raises(RuntimeError, match=f"{inner.name} cannot .* '{outer.name}' is being built; call its build"):
            outer(flow.ones(2))
        assert_same(inner(outside), flow.full((2,), 2.0))
    assert_same(Of(lambda x: inner.build(x) * inner.build(outside))(outside), flow.full((2,), 4.0))


@pytest.mark.parametrize("grad", [(True, False), (False, True), (False, False)], ids=str)
def test_gradients_are_recorded_in_any_grad_mode(grad: tuple[bool, bool]) -> None:
    model = mlp()
    twin = copy_of(model, mlp)
    graph = Train(model, loss_of, flow.optim.SGD(model.parameters(), lr=0.1))
    data = batches(2)
    for batch, mode in zip(data, grad, strict=True):
        with flow.set_grad_enabled(mode):
            graph(*batch)
    eager_steps(twin, flow.optim.SGD(twin.parameters(), lr=0.1), None, data)
    assert_same(dict(model.state_dict()), dict(twin.state_dict()))


@pytest.mark.host  # elsewhere masks made in a build are copied, and have no values there
def test_building_waits_for_a_constant_whose_shape_depends_on_values() -> None:
    class Chosen(nn.Graph):
        def build(self, x: flow.Tensor) -> flow.Tensor:
            return x[flow.tensor([True, False, True])]

    # Issued work runs when a thread waits for it.
    with entered(VirtualMachine("late", gather=1000)):
        assert Chosen()(flow.arange(3)).tolist() == [0, 2]
