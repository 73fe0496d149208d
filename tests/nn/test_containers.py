"""Lists and dicts of modules and of parameters."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import pytest

import vmflow as flow
from vmflow import nn


class Add(nn.Module):
    def __init__(self, amount: float) -> None:
        super().__init__()
        self.amount = amount

    def forward(self, x: float) -> float:
        return x + self.amount

    def extra_repr(self) -> str:
        return str(self.amount)


def amounts(modules: Any) -> list[float]:
    return [module.amount for module in modules]


# Sequential


def test_sequential_calls_in_order() -> None:
    class Double(nn.Module):
        def forward(self, x: float) -> float:
            return x * 2

    assert nn.Sequential(Add(1), Double(), Add(3))(1) == 7
    assert nn.Sequential()(5) == 5


def test_sequential_from_a_dict_keeps_names() -> None:
    made = nn.Sequential(OrderedDict([("first", Add(1)), ("second", Add(2))]))
    assert list(made._modules) == ["first", "second"]
    assert made.second.amount == 2
    assert amounts(made) == [1, 2]
    assert list(made[1:]._modules) == ["second"]
    assert list(nn.Sequential({"a": Add(1)})._modules) == ["a"]


def test_sequential_indexing() -> None:
    made = nn.Sequential(Add(1), Add(2), Add(3))
    assert len(made) == 3
    assert made[-1].amount == 3
    part = made[::2]
    assert type(part) is nn.Sequential
    assert amounts(part) == [1, 3]
    made[1] = Add(20)
    assert amounts(made) == [1, 20, 3]
    del made[0]
    assert list(made._modules) == ["0", "1"]
    with pytest.raises(IndexError, match="index 2 is out of range for Sequential of length 2"):
        made[2]
    with pytest.raises(IndexError):
        del made[-3]
    with pytest.raises(TypeError):
        made["0"]  # type: ignore[index]


def test_sequential_grows() -> None:
    made = nn.Sequential(Add(1))
    assert made.append(Add(2)) is made
    made.extend([Add(3), Add(4)])
    made.insert(0, Add(0))
    made.insert(-1, Add(3.5))
    assert amounts(made) == [0, 1, 2, 3, 3.5, 4]
    assert list(made._modules) == [str(number) for number in range(6)]
    assert made.pop().amount == 4
    assert made.pop(0).amount == 0
    assert amounts(made + nn.Sequential(Add(9))) == [1, 2, 3, 3.5, 9]
    assert amounts(made) == [1, 2, 3, 3.5]
    made += [Add(5)]
    assert amounts(made)[-1] == 5


def test_a_part_of_a_sequential_grows_without_losing_members() -> None:
    part = nn.Sequential(Add(1), Add(2), Add(3))[1:]
    assert amounts(part.append(Add(4))) == [2, 3, 4]
    assert amounts(part + [Add(5), Add(6)]) == [2, 3, 4, 5, 6]
    assert list(part._modules) == ["1", "2", "3"]


def test_sequential_refuses_other_objects_than_modules() -> None:
    made = nn.Sequential(Add(1))
    for attempt in (
        lambda: nn.Sequential(3),
        lambda: made.append(None),
        lambda: made.insert(0, "x"),
        lambda: made.extend([Add(2), 5]),
        lambda: made.__setitem__(0, 5),
        lambda: nn.Sequential({"a": 5}),
    ):
        with pytest.raises(TypeError, match="Sequential holds modules, not"):
            attempt()
    with pytest.raises(TypeError, match="expected several"):
        made.extend(7)  # type: ignore[arg-type]
    assert amounts(made) == [1]


# ModuleList


def test_module_list() -> None:
    made = nn.ModuleList([Add(1), Add(2)])
    made.append(Add(3))
    assert amounts(made) == [1, 2, 3]
    assert type(made[:2]) is nn.ModuleList
    assert list(made[1:]._modules) == ["0", "1"]
    del made[0:2]
    assert amounts(made) == [3]
    assert len(nn.ModuleList()) == 0
    with pytest.raises(NotImplementedError, match="ModuleList defines no forward"):
        made(1)


def test_module_list_shows_equal_neighbours_once() -> None:
    assert repr(nn.ModuleList([Add(1), Add(1), Add(2), Add(1)])) == (
        "ModuleList(\n  (0-1): 2 x Add(1)\n  (2): Add(2)\n  (3): Add(1)\n)"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"


# ModuleDict


def test_module_dict() -> None:
    made = nn.ModuleDict({"a": Add(1)})
    made["b"] = Add(2)
    made.update([("c", Add(3))])
    made.update(nn.ModuleDict({"d": Add(4)}))
    assert list(made) == list(made.keys()) == ["a", "b", "c", "d"]
    assert amounts(made.values()) == [1, 2, 3, 4]
    assert [key for key, _ in made.items()] == ["a", "b", "c", "d"]
    assert "b" in made
    assert made.get("z") is None
    assert made.pop("b").amount == 2
    assert len(made) == 3
    del made["a"]
    assert "a" not in made
    with pytest.raises(KeyError):
        made["a"]
    made.clear()
    assert len(made) == 0


def test_module_dict_refuses() -> None:
    made = nn.ModuleDict()
    with pytest.raises(TypeError, match="holds modules, not int"):
        made["x"] = 3
    with pytest.raises(KeyError, match="dot"):
        made["a.b"] = Add(1)
    with pytest.raises(KeyError, match="already has"):
        made["keys"] = Add(1)
    with pytest.raises(TypeError, match="mapping or pairs"):
        made.update(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pairs"):
        made.update(["abc"])  # type: ignore[list-item]


# ParameterList and ParameterDict


def test_parameter_list() -> None:
    kept = nn.Parameter(flow.zeros(2))
    made = nn.ParameterList([kept, flow.ones(1, 3)])
    assert made[0] is kept
    assert isinstance(made[1], nn.Parameter)
    made.append(flow.zeros(1))
    made[2] = flow.ones(4)
    assert [tuple(tensor.shape) for tensor in made] == [(2,), (1, 3), (4,)]
    assert list(made.state_dict()) == ["0", "1", "2"]
    assert len(list(made.parameters())) == 3
    assert repr(made[:2]) == (
        "ParameterList(\n"
        "  (0): Parameter containing: [vmflow.float32 of size 2]\n"
        "  (1): Parameter containing: [vmflow.float32 of size 1x3]\n"
        ")"
    )
    with pytest.raises(TypeError, match="holds parameters and tensors, not Linear"):
        made.append(nn.Linear(1, 1))
    with pytest.raises(TypeError, match="expected several"):
        made.extend(flow.zeros(3))


def test_parameter_dict() -> None:
    made = nn.ParameterDict({"a": flow.zeros(2)})
    made["b"] = nn.Parameter(flow.ones(1))
    assert list(made.state_dict()) == ["a", "b"]
    assert isinstance(made["a"], nn.Parameter)
    assert "(a): Parameter containing: [vmflow.float32 of size 2]" in repr(made)
    del made["a"]
    assert list(made.keys()) == ["b"]


def test_containers_register_with_their_owner() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(1, 1)])
            self.table = nn.ModuleDict({"x": nn.Linear(1, 1, bias=False)})
            self.loose = nn.ParameterList([flow.zeros(1)])

    net = Net()
    assert list(net.state_dict()) == ["layers.0.weight", "layers.0.bias", "table.x.weight", "loose.0"]
    twin = copy.deepcopy(net)
    assert twin.layers[0].weight is not net.layers[0].weight
    assert len(twin.loose) == 1


def test_reprs_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")

    def build(lib: Any) -> Any:
        return lib.Sequential(
            lib.ModuleList([lib.ReLU(), lib.ReLU(), lib.Linear(2, 3)]),
            lib.ModuleDict({"a": lib.Sequential(lib.Tanh())}),
            lib.Sequential(),
        )

    assert repr(build(nn)) == repr(build(torch.nn))


def test_a_graph_sees_that_a_list_has_grown() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.ReLU()])

        def forward(self, x: flow.Tensor) -> flow.Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    net = Net()

    class Graph(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def build(self, x: flow.Tensor) -> flow.Tensor:
            result: flow.Tensor = self.net(x)
            return result

    graph = Graph()
    assert graph(flow.tensor(2.0)).item() == 2
    net.layers.append(nn.Threshold(5, 7))
    assert graph(flow.tensor(2.0)).item() == 7
