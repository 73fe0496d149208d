"""SGD, Adam and AdamW: their numbers against PyTorch's and by hand, their state, and the one instruction of a step."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import vmflow as flow
from tests.planted import failed_tensor
from tests.support import instructions_issued
from vmflow import nn, optim

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.01, "momentum": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.01, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "betas": (0.8, 0.9), "eps": 1e-6}),
    ("Adam", {"maximize": True, "weight_decay": 0.2, "amsgrad": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3, "betas": (0.5, 0.6)}),
    ("AdamW", {"amsgrad": True, "maximize": True}),
]

# Small ones, a scalar, one without elements, and one that is worked on in several pieces.
SHAPES: list[tuple[int, ...]] = [(3, 4), (5,), (), (0, 2), (300, 200)]


def starting_values(dtype: Any = np.float64) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [np.asarray(generator.normal(size=shape), dtype) for shape in SHAPES]


def trajectory(lib: Any, make: Any, values: list[np.ndarray], steps: int = 20) -> list[np.ndarray]:
    """The values after so many steps on a loss that changes from step to step."""
    parameters = [lib.tensor(value) for value in values]
    for parameter in parameters:
        parameter.requires_grad_()
    optimizer = make(parameters)
    generator = np.random.default_rng(1)
    for step in range(steps):
        optimizer.zero_grad()
        loss = lib.tensor(np.zeros(()))
        for number, parameter in enumerate(parameters):
            weight = lib.tensor(np.asarray(generator.normal(size=parameter.shape), values[number].dtype))
            if step % 3 or number:  # the first one has no gradient in every third step
                loss = loss + (parameter * parameter * weight + parameter).sum()
        loss.backward()
        optimizer.step()
    return [parameter.detach().numpy() for parameter in parameters]


@pytest.mark.parametrize(("name", "arguments"), SETTINGS)
def test_trajectories_are_those_of_pytorch(name: str, arguments: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    values = starting_values()
    found = trajectory(flow, lambda value: getattr(optim, name)(value, **arguments), values)
    expected = trajectory(torch, lambda value: getattr(torch.optim, name)(value, **arguments), values)
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_group_settings_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    values = starting_values()

    def make(lib: Any) -> Any:
        return lambda x: getattr(lib.optim, name)(
            [{"params": x[:2], "lr": 0.2, "weight_decay": 0.5}, {"params": x[2:]}], lr=0.01
        )

    for have, want in zip(
        trajectory(flow, make(flow), values, 5), trajectory(torch, make(torch), values, 5), strict=True
    ):
        np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-6)


# By hand, for machines without PyTorch


def one_step(optimizer_of: Any, value: float = 2.0, gradient: float = 3.0, steps: int = 1) -> float:
    parameter = flow.tensor([value], dtype=flow.float64, requires_grad=True)
    optimizer = optimizer_of([parameter])
    for _ in range(steps):
        parameter.grad = flow.tensor([gradient], dtype=flow.float64)
        optimizer.step()
    return float(parameter.item())


def test_first_steps_by_hand() -> None:
    def close(found: float, expected: float) -> None:
        np.testing.assert_allclose(found, expected, rtol=1e-12)

    close(one_step(lambda x: optim.SGD(x, lr=0.1)), 2 - 0.3)
    close(one_step(lambda x: optim.SGD(x, lr=0.1, weight_decay=0.5)), 2 - 0.1 * 4)
    close(one_step(lambda x: optim.SGD(x, lr=0.1, momentum=0.9, dampening=0.5), steps=2), 2 - 0.3 - 0.1 * (2.7 + 1.5))
    close(one_step(lambda x: optim.SGD(x, lr=0.1, momentum=0.9, nesterov=True)), 2 - 0.1 * (3 + 2.7))
    # Adam's first step is as long as the learning rate, for any gradient.
    close(one_step(lambda x: optim.Adam(x, lr=0.1, eps=0)), 1.9)
    close(one_step(lambda x: optim.Adam(x, lr=0.1, eps=0, maximize=True)), 2.1)
    close(one_step(lambda x: optim.AdamW(x, lr=0.1, eps=0, weight_decay=0.5)), 2 * 0.95 - 0.1)


# Dtypes and layouts


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("dtype", [flow.float32, flow.float16, flow.bfloat16])
def test_smaller_dtypes_follow_the_large_one(name: str, dtype: Any) -> None:
    arguments = {"SGD": {"lr": 0.1, "momentum": 0.5, "nesterov": True}}.get(name, {"lr": 0.1})
    start, slope = [1.0, -2.0, 0.5], [0.25, -0.5, 1.0]
    found = []
    for kind in (dtype, flow.float64):
        parameter = flow.tensor(start, dtype=kind, requires_grad=True)
        optimizer = getattr(optim, name)([parameter], **arguments)
        for _ in range(5):
            parameter.grad = flow.tensor(slope, dtype=kind)
            optimizer.step()
        assert parameter.dtype is kind
        assert all(value.dtype is kind for key, value in optimizer.state[parameter].items() if key != "step")
        found.append(parameter.detach().double().numpy())
    tolerance = {"float32": 1e-6, "float16": 1e-2, "bfloat16": 5e-2}[dtype.name]
    np.testing.assert_allclose(found[0], found[1], atol=tolerance)


def check_complex_parameters(name: str, arguments: dict[str, Any]) -> None:
    """A complex parameter changes as a real one does that holds its real and imaginary parts."""
    generator = np.random.default_rng(2)
    start, slopes = generator.normal(size=(4, 2)), generator.normal(size=(7, 4, 2))
    pair = flow.tensor(start, requires_grad=True)
    whole = flow.tensor(start.view(np.complex128)[:, 0], requires_grad=True)
    for parameter, gradients in ((pair, slopes), (whole, slopes.view(np.complex128)[..., 0])):
        optimizer = getattr(optim, name)([parameter], **arguments)
        for gradient in gradients:
            parameter.grad = flow.tensor(gradient)
            optimizer.step()
    np.testing.assert_allclose(whole.detach().numpy(), pair.detach().numpy().view(np.complex128)[:, 0], rtol=1e-12)


@pytest.mark.parametrize(("name", "arguments"), SETTINGS)
def test_complex_parameters_are_two_real_ones(name: str, arguments: dict[str, Any]) -> None:
    check_complex_parameters(name, arguments)


def test_parameters_and_gradients_that_are_views() -> None:
    base = flow.tensor(np.arange(12.0).reshape(3, 4))
    parameter = nn.Parameter(base.t())
    optimizer = optim.Adam([parameter], lr=0.5, eps=0)
    parameter.grad = flow.tensor([1.0], dtype=flow.float64).expand(4, 3)
    optimizer.step()
    np.testing.assert_allclose(base.numpy(), np.arange(12.0).reshape(3, 4) - 0.5)


def test_views_of_one_vector_are_trained_apart() -> None:
    vector = flow.zeros(6)
    parameters = [nn.Parameter(flow.ones(2)), nn.Parameter(flow.ones(4))]
    nn.utils.vector_to_parameters(vector, parameters)
    optimizer = optim.SGD(parameters, lr=1.0)
    for number, parameter in enumerate(parameters):
        parameter.grad = flow.full(tuple(parameter.shape), -1.0 - number)
    optimizer.step()
    assert vector.tolist() == [1, 1, 2, 2, 2, 2]


@settings(max_examples=25)
@given(
    shape=st.lists(st.integers(0, 5), max_size=3),
    size=st.integers(1, 7),
    kind=st.sampled_from([np.float64, np.complex128]),
    transposed=st.booleans(),
)
def test_pieces_cover_every_element_once(shape: list[int], size: int, kind: Any, transposed: bool) -> None:
    from vmflow.kernels.numpy.updates.pieces import pieces

    first, second = np.zeros(shape, kind), np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    if kind is np.complex128:
        second *= 1 + 2j
    if transposed:
        first, second = first.T, second.T
    for target, source in pieces([first, second], size):
        assert target.dtype == np.float64
        target += source
    np.testing.assert_array_equal(first, second)


# The learning rate


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_tensor_as_learning_rate(name: str) -> None:
    rate = flow.tensor(0.5, dtype=flow.float64)
    parameters = [flow.ones(2, dtype=flow.float64, requires_grad=True) for _ in range(2)]
    optimizers = [getattr(optim, name)([value], lr=lr) for value, lr in zip(parameters, (rate, 0.5), strict=True)]
    for factor in (1.0, 0.1):
        rate.fill_(0.5 * factor)
        optimizers[1].param_groups[0]["lr"] = 0.5 * factor
        for parameter, optimizer in zip(parameters, optimizers, strict=True):
            parameter.grad = flow.tensor([1.0, -2.0], dtype=flow.float64)
            optimizer.step()
    np.testing.assert_array_equal(parameters[0].detach().numpy(), parameters[1].detach().numpy())


def test_settings_are_taken_when_the_step_is_issued() -> None:
    parameter = flow.zeros(1, requires_grad=True)
    parameter.grad = flow.ones(1)
    optimizer = optim.SGD([parameter], lr=1.0)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 100.0
    assert parameter.item() == -1


# The instruction


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_step_is_one_instruction_for_all_groups(name: str) -> None:
    parameters = [flow.zeros(2, requires_grad=True) for _ in range(5)]
    for parameter in parameters:
        parameter.grad = flow.ones(2)
    arguments = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(optim, name)([{"params": parameters[:3]}, {"params": parameters[3:]}], lr=0.1, **arguments)
    optimizer.step()  # makes the state
    with instructions_issued() as issued:
        optimizer.step()
    assert len(issued) == 1


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adafactor"])
def test_parameters_of_a_group_on_several_devices(name: str) -> None:
    parameters = [flow.ones(2, device=device, requires_grad=True) for device in ("meta", "cpu", "sim")]
    for parameter in parameters:
        parameter.grad = flow.ones(2, device=parameter.device)
    getattr(optim, name)(parameters, lr=0.25).step()
    assert [parameter.tolist() for parameter in parameters[1:]] == [pytest.approx([0.75, 0.75])] * 2


def test_without_gradients_nothing_is_issued_nor_remembered() -> None:
    parameter = flow.zeros(2, requires_grad=True)
    for optimizer in (optim.SGD([parameter], momentum=0.5), optim.Adam([parameter])):
        with instructions_issued() as issued:
            optimizer.step()
        assert not issued
        assert not optimizer.state_dict()["state"]


def test_autograd_notices_the_step() -> None:
    parameter = flow.ones(2, requires_grad=True)
    loss = (parameter * parameter).sum()
    parameter.grad = flow.ones(2)
    optim.SGD([parameter], lr=0.1).step()
    with pytest.raises(RuntimeError, match="changed in place"):
        loss.backward()
    assert parameter.is_leaf
    assert parameter.requires_grad


def test_a_failed_gradient_spoils_the_whole_step() -> None:
    good, bad, other = (flow.ones(1, requires_grad=True) for _ in range(3))
    optimizer = optim.SGD([good, bad], lr=0.1, momentum=0.9)
    good.grad = flow.ones(1)
    bad.grad = failed_tensor()
    optimizer.step()
    for spoiled in (good, bad, *(state["momentum_buffer"] for state in optimizer.state.values())):
        with pytest.raises(ZeroDivisionError, match="planted"):
            spoiled.detach().numpy()
    assert other.item() == 1


@pytest.mark.host_arrays
def test_a_kernel_that_raises_spoils_everything_it_may_have_touched() -> None:
    from vmflow.multi_tensor import Update, issue_update

    first, second = flow.zeros(2), flow.zeros(3)

    def kernel(inputs: list[Any], outputs: list[Any]) -> None:
        outputs[0][...] = 7
        raise ArithmeticError("half way")

    issue_update(Update("halved", kernel, [], [first, second], 0))
    for tensor in (first, second):
        with pytest.raises(ArithmeticError, match="half way") as caught:
            tensor.numpy()
    assert any("halved(float32[2], float32[3])" in note for note in caught.value.__notes__)


def test_a_described_update_does_not_list_thousands() -> None:
    from vmflow.instructions import MultiTensorUpdate

    policy = MultiTensorUpdate("many", lambda inputs, outputs: None, (), tuple([flow.zeros(1)._blob] * 10))
    assert policy.describe().endswith("and 6 more)")


async def test_a_dropped_step_is_dropped_as_a_whole() -> None:
    class Leave(Exception):
        pass

    parameters: list[flow.Tensor] = []

    async def step_and_leave() -> None:
        async with flow.VirtualMachine("dropped", gather=1):
            parameters.extend([flow.zeros(2, requires_grad=True) for _ in range(3)])
            for parameter in parameters:
                parameter.grad = flow.ones(2)
            await flow.synchronize()
            optim.SGD(parameters, lr=0.1).step()
            raise Leave

    with pytest.raises(Leave):
        await step_and_leave()
    for parameter in parameters:
        assert (await parameter).tolist() == [0.0, 0.0], "as before it"


async def test_training_in_a_coroutine_never_blocks() -> None:
    parameter = flow.zeros(3, requires_grad=True)
    target = flow.tensor([1.0, -2.0, 3.0])
    optimizer = optim.Adam([parameter], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        ((parameter - target) ** 2).sum().backward()
        nn.utils.clip_grad_norm_([parameter], 10.0)
        optimizer.step()
    await parameter
    np.testing.assert_allclose(parameter.detach().numpy(), target.numpy(), atol=0.05)


# The interface


def test_closure() -> None:
    parameter = flow.ones(1, requires_grad=True)
    optimizer = optim.SGD([parameter], lr=0.25)

    def closure() -> flow.Tensor:
        optimizer.zero_grad()
        loss = (parameter * 2).sum()
        loss.backward()
        return loss

    with flow.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 2
    assert parameter.item() == 0.5
    assert optimizer.step() is None


def test_zero_grad() -> None:
    parameters = [flow.ones(2, requires_grad=True) for _ in range(3)]
    for parameter in parameters[:2]:
        parameter.grad = flow.ones(2)
    gradients = [value.grad for value in parameters]
    optimizer = optim.SGD(parameters)
    with instructions_issued() as issued:
        optimizer.zero_grad(set_to_none=False)
    assert len(issued) == 1
    for parameter, gradient in zip(parameters, gradients, strict=True):
        assert parameter.grad is gradient
        assert gradient is None or gradient.tolist() == [0, 0]
    optimizer.zero_grad()
    assert all(value.grad is None for value in parameters)


def test_zero_grad_forgets_how_a_gradient_was_made() -> None:
    parameter = flow.ones(1, requires_grad=True)
    (parameter**3).sum().backward(create_graph=True)
    assert parameter.grad is not None
    assert parameter.grad.requires_grad
    optim.SGD([parameter]).zero_grad(set_to_none=False)
    assert not parameter.grad.requires_grad


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        (lambda: flow.zeros(1, 2), TypeError, r"SGD: got a single tensor of shape \[1, 2\]; put it into a list"),
        (lambda: 3, TypeError, "expected a list of parameters or of groups, got int$"),
        (lambda: None, TypeError, "got NoneType$"),
        (lambda: "weight", TypeError, "got str$"),
        (lambda: nn.Linear(1, 1), TypeError, r"got the module Linear; .* model\.parameters\(\)"),
        (lambda: nn.Sequential(nn.Linear(1, 1)), TypeError, r"got the module Sequential; .* model\.parameters\(\)"),
        (lambda: nn.ParameterDict({"a": nn.Parameter()}), TypeError, "got the module ParameterDict"),
        (lambda: [nn.Linear(1, 1)], TypeError, r"parameter 0 is the module Linear; .* model\.parameters\(\)"),
        (lambda: [{"params": nn.Linear(1, 1)}], TypeError, "got the module Linear"),
        (lambda: nn.Linear(1, 1).parameters, TypeError, r"got method; call it: model\.parameters\(\)"),
        (
            lambda: nn.Linear(1, 1).named_parameters(),
            TypeError,
            "the pair of the name 'weight' and a tensor; give param",
        ),
        (lambda: nn.Linear(1, 1).state_dict(), TypeError, "a dict with the keys 'weight', 'bias'; give a list"),
        (lambda: {"params": [flow.zeros(1)]}, TypeError, r"keys 'params'; .* or of groups, \[{'params': \.\.\.}\]"),
        (lambda: np.zeros(3), TypeError, "parameter 0 is float64, not a tensor"),
        (lambda: np.zeros((3, 1)), TypeError, r"parameter 0 is ndarray; .* vmflow\.nn\.Parameter"),
        (lambda: [[flow.zeros(1)]], TypeError, "parameter 0 is list; expected tensors, all in one list"),
        (lambda: [flow.zeros(1), {"params": []}], TypeError, "parameter 1 is a group, behind parameters without one"),
        (lambda: [{"params": []}, flow.zeros(1)], TypeError, "a group must be a dict"),
        (lambda: [{"params": None}], TypeError, "got NoneType$"),
        (lambda: [3], TypeError, "parameter 0 is int"),
        (lambda: [{"lr": 1}], TypeError, "key 'params'"),
        (lambda: [{"params": {flow.zeros(1)}}], TypeError, "not in a set"),
        (lambda: [flow.zeros(1, requires_grad=True) * 2], ValueError, "only leaves"),
        (lambda: [flow.zeros(1)] * 2, ValueError, "given twice"),
    ],
)
def test_wrong_parameters_are_refused(params: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        optim.SGD(params())


def test_a_generator_that_was_used_up_is_no_list_of_parameters() -> None:
    model = nn.Linear(2, 1)
    parameters = model.parameters()
    optimizer = optim.SGD(parameters)
    for again in (parameters, [{"params": parameters}]):
        with pytest.raises(ValueError, match=r"has been used up; call model\.parameters\(\) once more"):
            optim.Adam(again)
    with pytest.raises(ValueError, match="has been used up"):
        optimizer.add_param_group({"params": parameters})
    assert len(optimizer.param_groups) == 1
    begun = model.parameters()
    assert next(begun) is model.weight
    assert optim.SGD(begun).param_groups[0]["params"] == [model.bias]


def test_a_list_of_parameters_that_is_a_module() -> None:
    parameters = nn.ParameterList([nn.Parameter(flow.ones(1)), nn.Parameter(flow.ones(2))])
    assert optim.SGD(parameters).param_groups[0]["params"] == list(parameters)


@pytest.mark.parametrize("name", sorted(name for name, var in vars(optim).items() if isinstance(var, type)))
@pytest.mark.parametrize("params", [list, tuple, lambda: nn.ReLU().parameters(), lambda: [{"params": []}]])
def test_without_parameters_a_step_does_nothing(name: str, params: Any) -> None:
    kind = getattr(optim, name)
    if not issubclass(kind, optim.Optimizer) or kind is optim.Optimizer:
        pytest.skip(f"{name} takes no steps of its own")
    optimizer = kind(params(), lr=0.5)
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    loss = flow.ones(1)
    with instructions_issued() as issued:
        optimizer.zero_grad()
        assert optimizer.step(lambda: loss) is loss
        if name != "LBFGS":
            assert optimizer.step() is None
            optimizer.step_unless(loss)
    assert issued == []
    schedule.step()
    saved = optimizer.state_dict()
    assert saved["state"] == {}
    assert [(group["params"], group["lr"]) for group in saved["param_groups"]] == [([], 0.25)]
    other = kind(params(), lr=1.0)
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.25
    assert "lr: 0.25" in repr(copy.deepcopy(pickle.loads(pickle.dumps(other))))


def test_parameters_can_join_an_optimizer_of_none() -> None:
    optimizer = optim.SGD([], lr=1.0)
    parameter = flow.zeros(1, requires_grad=True)
    optimizer.add_param_group({"params": parameter})
    parameter.grad = flow.ones(1)
    optimizer.step()
    assert parameter.item() == -1


def test_a_gradient_scaler_takes_an_optimizer_of_none() -> None:
    scaler = flow.amp.GradScaler(init_scale=4.0, growth_interval=1)
    optimizer = optim.SGD([])
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() in (4.0, 8.0)


@pytest.mark.parametrize(
    ("name", "arguments", "match"),
    [
        ("SGD", {"lr": -1}, "lr must be"),
        ("SGD", {"lr": float("nan")}, "lr must be"),
        ("SGD", {"momentum": -0.1}, "momentum"),
        ("SGD", {"weight_decay": -1}, "weight_decay"),
        ("SGD", {"nesterov": True}, "Nesterov"),
        ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "Nesterov"),
        ("SGD", {"lr": flow.zeros(2)}, "one element"),
        ("Adam", {"eps": -1}, "eps"),
        ("Adam", {"betas": (0.9, 1.0)}, "betas"),
        ("AdamW", {"betas": (-0.1, 0.9)}, "AdamW: betas"),
        ("AdamW", {"betas": (0.1,)}, "betas"),
        ("Adam", {"betas": 0.9}, r"betas must be two numbers within \[0, 1\), got 0\.9"),
        ("Adam", {"betas": ("a", "b")}, "betas must be two numbers"),
        ("Adam", {"lr": "0.1"}, "lr must be a number that is not negative, got '0.1'"),
        ("SGD", {"lr": None}, "lr must be a number that is not negative, got None"),
        ("SGD", {"momentum": [0.9]}, "momentum must be a number"),
    ],
)
def test_settings_that_make_no_sense(name: str, arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        getattr(optim, name)([flow.zeros(1)], **arguments)
    with pytest.raises(ValueError, match=match):
        getattr(optim, name)([{"params": [flow.zeros(1)], **arguments}])


def test_groups_can_be_added() -> None:
    first, second = flow.zeros(1, requires_grad=True), flow.zeros(1, requires_grad=True)
    optimizer = optim.SGD([first], lr=1.0)
    optimizer.add_param_group({"params": second, "lr": 10.0})
    for parameter in (first, second):
        parameter.grad = flow.ones(1)
    optimizer.step()
    assert (first.item(), second.item()) == (-1, -10)
    with pytest.raises(ValueError, match="given twice"):
        optimizer.add_param_group({"params": [first]})


def test_repr() -> None:
    assert repr(optim.SGD([flow.zeros(1)], lr=0.5)) == (
        "SGD (\nParameter Group 0\n    dampening: 0\n    lr: 0.5\n    maximize: False\n    momentum: 0\n"
        "    nesterov: False\n    weight_decay: 0\n)"
    )


def test_a_subclass_of_ones_own() -> None:
    class Fixed(optim.Optimizer):
        def update(self, group: dict[str, Any]) -> None:
            with flow.no_grad():
                for parameter in group["params"]:
                    parameter.sub_(group["amount"])

    parameter = flow.zeros(1, requires_grad=True)
    Fixed([parameter], {"amount": 3}).step()
    assert parameter.item() == -3
    with pytest.raises(NotImplementedError, match="Optimizer defines no update"):
        optim.Optimizer([parameter], {}).step()


# State


def trained(name: str, arguments: dict[str, Any], steps: int) -> tuple[list[flow.Tensor], optim.Optimizer]:
    parameters = [flow.ones(3, requires_grad=True), flow.full((2, 2), 2.0, requires_grad=True)]
    optimizer = getattr(optim, name)([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.3}], **arguments)
    train(parameters, optimizer, steps)
    return parameters, optimizer


def train(parameters: list[flow.Tensor], optimizer: optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        sum([(parameter**3).sum() for parameter in parameters], start=flow.zeros(())).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SGD", {"lr": 0.01, "momentum": 0.9}),
        ("Adam", {"lr": 0.01, "amsgrad": True}),
        ("AdamW", {"lr": flow.tensor(0.01)}),
    ],
)
def test_training_goes_on_from_a_state_dict(name: str, arguments: dict[str, Any]) -> None:
    expected, _ = trained(name, arguments, 6)
    half, optimizer = trained(name, arguments, 3)
    state = optimizer.state_dict()
    assert [group["params"] for group in state["param_groups"]] == [[0], [1]]
    again, other = trained(name, {}, 0)
    with flow.no_grad():
        for target, source in zip(again, half, strict=True):
            target.copy_(source)
    other.load_state_dict(state)
    train(again, other, 3)
    for have, want in zip(again, expected, strict=True):
        np.testing.assert_array_equal(have.detach().numpy(), want.detach().numpy())
    # The first optimizer's state is still its own.
    train(half, optimizer, 3)
    for have, want in zip(half, expected, strict=True):
        np.testing.assert_array_equal(have.detach().numpy(), want.detach().numpy())


@pytest.mark.parametrize(("name", "number"), [("NAdam", "mu_product"), ("ASGD", "eta")])
@pytest.mark.parametrize("dtype", [flow.complex64, flow.float16])
def test_numbers_in_a_state_dict_keep_their_dtype(name: str, number: str, dtype: flow.dtype) -> None:
    parameters = [flow.tensor([1.0, 2.0], dtype=dtype, requires_grad=True) for _ in range(2)]
    made = [getattr(optim, name)([parameter]) for parameter in parameters]
    for _ in range(2):
        for parameter, optimizer in zip(parameters, made, strict=True):
            parameter.grad = flow.ones(2, dtype=dtype)
            optimizer.step()
        made[1].load_state_dict(made[0].state_dict())
    assert made[1].state[parameters[1]][number].dtype is flow.float32
    np.testing.assert_array_equal(*[parameter.detach().numpy() for parameter in parameters])


def test_a_state_dict_of_pytorch_is_understood() -> None:
    torch = pytest.importorskip("torch")
    values = starting_values()
    made: dict[str, Any] = {}
    for lib in (torch, flow):
        parameters = [lib.tensor(entry) for entry in values]
        for parameter in parameters:
            parameter.requires_grad_()
        made[lib.__name__] = (parameters, lib.optim.Adam(parameters, lr=0.1, amsgrad=True))
    for parameters, optimizer in made.values():
        sum((entry**2).sum() for entry in parameters).backward()
        optimizer.step()
    state = made["torch"][1].state_dict()
    state["state"] = {
        number: {key: flow.tensor(value.numpy()) for key, value in remembered.items()}
        for number, remembered in state["state"].items()
    }
    parameters, optimizer = made["vmflow"]
    mine = optimizer.state_dict()["state"]
    assert mine.keys() == state["state"].keys()
    for number, remembered in mine.items():
        assert list(remembered) == list(state["state"][number])
        for key, value in remembered.items():
            assert value.dtype is state["state"][number][key].dtype
            np.testing.assert_allclose(value.numpy(), state["state"][number][key].numpy(), rtol=1e-12)
    optimizer.load_state_dict(state)
    optimizer.step()
    made["torch"][1].step()
    for have, want in zip(parameters, made["torch"][0], strict=True):
        np.testing.assert_allclose(have.detach().numpy(), want.detach().numpy(), rtol=1e-10)


def test_a_state_dict_that_does_not_fit_changes_nothing() -> None:
    _, optimizer = trained("Adam", {}, 1)
    state = optimizer.state_dict()
    before = [dict(entry) for entry in optimizer.state.values()]

    def broken(change: Any) -> dict[str, Any]:
        copied: dict[str, Any] = {
            "state": {key: dict(value) for key, value in state["state"].items()},
            "param_groups": [dict(entry) for entry in state["param_groups"]],
        }
        change(copied)
        return copied

    for change, error, match in (
        (lambda x: x["param_groups"].pop(), ValueError, "has 1 groups, the optimizer 2"),
        (lambda x: x["param_groups"][0].update(params=[0, 5]), ValueError, "group 0 has 2 parameters"),
        (lambda x: x["state"].update({9: {}}), ValueError, "parameter 9, which is in no group"),
        (
            lambda x: x["state"][1].update(exp_avg=flow.zeros(5)),
            ValueError,
            r"'exp_avg' of parameter 1 has shape \[5\]",
        ),
        (lambda x: x["state"][1].update(exp_avg=3), ValueError, "is int"),
        (lambda x: x["param_groups"][0].update(eps=-1), ValueError, "eps"),
        (lambda x: x.pop("state"), KeyError, "no 'state'"),
    ):
        with pytest.raises(error, match=match):
            optimizer.load_state_dict(broken(change))
    for have, want in zip(optimizer.state.values(), before, strict=True):
        assert have.keys() == want.keys()
        assert all(have[key] is want[key] for key in have)


def test_loading_casts_to_the_parameters_dtype() -> None:
    parameters, optimizer = trained("Adam", {}, 1)
    doubles = [parameter.detach().double().requires_grad_() for parameter in parameters]
    other = optim.Adam([{"params": doubles[:1]}, {"params": doubles[1:]}])
    state = optimizer.state_dict()
    state["state"][0]["step"] = 1  # as older files have it
    other.load_state_dict(state)
    assert other.state[doubles[0]]["exp_avg"].dtype is flow.float64
    assert other.state[doubles[0]]["step"].dtype is flow.float32
    assert other.state[doubles[0]]["step"].item() == 1


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_belong_together(again: Any) -> None:
    parameters, optimizer = trained("Adam", {"lr": 0.01}, 2)
    others, other = again((parameters, optimizer))
    assert other.param_groups[0]["params"][0] is others[0]
    train(parameters, optimizer, 2)
    train(others, other, 2)
    for have, want in zip(others, parameters, strict=True):
        np.testing.assert_array_equal(have.detach().numpy(), want.detach().numpy())
