"""Names of modules, of their utilities, and of what fills them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

import numpy as np

from .case import Case

WEIGHT: Final = [[0.5, -1.0, 2.0], [1.5, 0.25, -3.0]]
X: Final = [[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]]


def _linear(t: Any) -> Any:
    """A layer with weights that are known."""
    layer = t.nn.Linear(3, 2)
    layer.load_state_dict({"weight": t.tensor(WEIGHT), "bias": t.tensor([0.5, -0.5])})
    return layer


def _x(t: Any) -> Any:
    return t.tensor(X)


def _hooked(t: Any, register: Callable[[Any, Callable[..., Any]], Any]) -> Any:
    """The gradients that a hook of a layer gets."""
    layer, seen = _linear(t), []
    handle = register(layer, lambda module, given, result: seen.extend([*given, *result]))
    layer(_x(t).requires_grad_()).sum().backward()
    handle.remove()
    return seen


def _around(t: Any, name: str, hook: Callable[..., Any]) -> Any:
    """The result of a layer, with a hook of all modules."""
    handle = getattr(t.nn.modules.module, name)(hook)
    try:
        return _linear(t)(_x(t))
    finally:
        handle.remove()


def _with_hook(t: Any, name: str, hook: Callable[..., Any]) -> list[str]:
    layer = _linear(t)
    getattr(layer, name)(hook)
    return list(layer.state_dict())


def _renamed(found: Any, *rest: Any) -> None:
    found["weight"] = found.pop("old")


def _loaded(t: Any, name: str, hook: Callable[..., Any], missing: bool = False) -> Any:
    layer = _linear(t)
    getattr(layer, name)(hook)
    state = {"old": t.ones(2, 3), "bias": t.zeros(2)}
    return layer.load_state_dict({"bias": state["bias"]} if missing else state) and layer(_x(t))


def _forgiving(module: Any, keys: Any) -> None:
    keys.missing_keys.clear()


def _twice(t: Any) -> list[int]:
    layer = _linear(t)
    both = t.nn.Sequential(layer, layer)
    return [len(list(both.modules())), len(list(both.modules(remove_duplicate=False)))]


def _refused(function: Callable[[], Any]) -> str:
    try:
        function()
    except NotImplementedError as error:
        return type(error).__name__
    return ""


def _arrays(t: Any, **keywords: Any) -> Any:
    layer = t.nn.Linear(3, 2)
    layer.load_state_dict({"weight": np.array(WEIGHT, np.float32), "bias": np.zeros(2, np.float32)}, **keywords)
    return layer(_x(t))


def _by_hand(bias: float = 0.0) -> Any:
    return np.array(X, np.float32) @ np.array(WEIGHT, np.float32).T + np.float32(bias)


def _lazy(t: Any, name: str, *arguments: Any, shape: tuple[int, ...], **keywords: Any) -> Any:
    layer = getattr(t.nn, name)(*arguments, **keywords)
    layer(t.ones(shape))
    return [repr(layer), {key: list(value.shape) for key, value in layer.state_dict().items()}]


def _lazy_ranked(t: Any, kind: str, rank: int) -> Any:
    arguments = (4, 2) if kind.startswith("Conv") else ()
    return _lazy(t, f"Lazy{kind}{rank}d", *arguments, shape=(2, 3, 4, 5, 6)[: rank + 2])


def _filled(t: Any, name: str, shape: tuple[int, ...], arguments: tuple[float, ...] = ()) -> Any:
    """The warning of an old name of `nn.init`, and the values that it fills in unless they are random."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = getattr(t.nn.init, name)(t.zeros(shape), *arguments)
    random = name not in ("constant", "eye", "dirac")
    return [
        [value.category.__name__ for value in told],
        list(found.shape),
        float(found.abs().max()) > 0 if random else found,
    ]


def _hardtanh(t: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return t.nn.Hardtanh(min_value=-0.5, max_value=2.0)(_x(t))


def _adaptive(t: Any) -> Any:
    layer = t.nn.AdaptiveLogSoftmaxWithLoss(3, 8, [2, 4], div_value=1.0)
    layer.load_state_dict(
        {key: t.arange(value.numel()).reshape(tuple(value.shape)) / 10 for key, value in layer.state_dict().items()}
    )
    return [*layer(_x(t), t.tensor([1, 6])), layer.log_prob(_x(t)), layer.predict(_x(t))]


def _recurrent(t: Any, mode: str) -> Any:
    layer = t.nn.RNNBase(mode, 3, 2, num_layers=2, bidirectional=True)
    return [layer.mode, {key: list(value.shape) for key, value in layer.state_dict().items()}]


def _registered(t: Any, kind: str) -> list[str]:
    seen: list[str] = []
    handle = getattr(t.nn.modules.module, f"register_module_{kind}_registration_hook")(
        lambda module, name, value: seen.append(name)
    )
    net = t.nn.Sequential(t.nn.Linear(1, 1))
    net.register_buffer("extra", t.ones(1))
    handle.remove()
    return seen


def _symmetric(t: Any, unsafe: bool = False) -> Any:
    """A layer whose weight is symmetric."""

    class Symmetric(t.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).mT

        def right_inverse(self, x: Any) -> Any:
            return x.triu()

    layer = t.nn.Linear(2, 2)
    layer.load_state_dict({"weight": t.tensor([[1.0, 2.0], [3.0, 4.0]]), "bias": t.zeros(2)})
    return t.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric(), unsafe=unsafe)


def _parametrized(t: Any) -> Any:
    layer = _symmetric(t)
    found = [layer.weight, list(layer.state_dict()), layer(t.ones(1, 2)), layer.parametrizations.weight.original]
    layer.weight = t.tensor([[5.0, 6.0], [6.0, 7.0]])
    return [*found, layer.weight, type(layer).__name__]


def _is_parametrized(t: Any) -> Any:
    asked = t.nn.utils.parametrize.is_parametrized
    layer = _symmetric(t)
    return [asked(layer), asked(layer, "weight"), asked(layer, "bias"), asked(t.nn.Linear(1, 1))]


def _removed(t: Any, leave: bool) -> Any:
    layer = t.nn.utils.parametrize.remove_parametrizations(_symmetric(t), "weight", leave_parametrized=leave)
    return [layer.weight, sorted(layer.state_dict()), type(layer).__name__]


def _cached(t: Any) -> list[bool]:
    layer = _symmetric(t)
    with t.nn.utils.parametrize.cached():
        inside = layer.weight is layer.weight
    return [inside, layer.weight is layer.weight]


def _transferred(t: Any) -> Any:
    layer = t.nn.utils.parametrize.transfer_parametrizations_and_params(_symmetric(t), t.nn.Linear(2, 2))
    return [layer.weight, list(layer.state_dict())]


def _normed(t: Any, name: str, dim: int) -> Any:
    layer = getattr(t.nn.utils.parametrizations, name)(_linear(t), "weight", dim)
    return [repr(layer), list(layer.state_dict()), layer(_x(t))]


def _spectral(t: Any) -> Any:
    layer = t.nn.utils.parametrizations.spectral_norm(_linear(t), n_power_iterations=40)
    return [repr(layer), list(layer.state_dict()), layer(_x(t))]


def _orthogonal(t: Any) -> Any:
    layer = t.nn.utils.parametrizations.orthogonal(_linear(t))
    return [repr(layer), list(layer.state_dict()), layer.weight @ layer.weight.mT]


def _prune(t: Any) -> Any:
    """The module, which PyTorch does not import by itself."""
    return import_module(f"{t.__name__}.nn.utils.prune")


def _pruned(t: Any, name: str, *rest: Any, **keywords: Any) -> Any:
    """The weight of a pruned layer, its mask, the names in its state and its result."""
    layer = getattr(_prune(t), name)(_linear(t), "weight", *rest, **keywords)
    return [layer.weight, layer.weight_mask, list(layer.state_dict()), layer(_x(t))]


def _mask(t: Any) -> Any:
    return t.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])


def _randomly(t: Any, name: str, *rest: Any) -> int:
    """How many elements are pruned."""
    layer = getattr(_prune(t), name)(_linear(t), "weight", *rest)
    return int((layer.weight_mask == 0).sum())


def _globally(t: Any) -> Any:
    layer = _linear(t)
    _prune(t).global_unstructured(
        [(layer, "weight"), (layer, "bias")], pruning_method=_prune(t).L1Unstructured, amount=0.5
    )
    return [layer.weight, layer.bias]


def _no_longer_pruned(t: Any) -> Any:
    prune = _prune(t)
    layer = prune.l1_unstructured(_linear(t), "weight", 0.5)
    found = [prune.is_pruned(layer)]
    return [*found, prune.remove(layer, "weight").weight, prune.is_pruned(layer), list(layer.state_dict())]


def _left(t: Any, name: str, rest: tuple[Any, ...]) -> Any:
    """The tensor after pruning by a method."""
    return getattr(_prune(t), name)(*rest).prune(_x(t))


def _number_pruned(t: Any, name: str, rest: tuple[Any, ...]) -> int:
    return int((getattr(_prune(t), name)(*rest).prune(t.ones(2, 3)) == 0).sum())


def _own_method(t: Any) -> Any:
    class First(_prune(t).BasePruningMethod):  # type: ignore[misc]
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t: Any, default_mask: Any) -> Any:
            mask = default_mask.clone()
            mask.view(-1)[0] = 0
            return mask

    layer = _linear(t)
    First.apply(layer, "weight")
    made = First.apply(layer, "weight")
    return [layer.weight, type(made).__name__, len(made)]


def _clipped(t: Any, name: str, *rest: Any, **keywords: Any) -> Any:
    """Gradients after clipping, and what that returns."""
    layer = _linear(t)
    (layer(_x(t)) ** 2).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(t.nn.utils, name)(list(layer.parameters()), *rest, **keywords)
    return [found, layer.weight.grad, layer.bias.grad]


def _with_norm(t: Any) -> Any:
    x = t.ones(3).requires_grad_()
    (x * 2).sum().backward()
    norm = t.nn.utils.get_total_norm([x.grad], foreach=False)
    t.nn.utils.clip_grads_with_norm_(x, 1.0, norm, foreach=True)
    return [norm, x.grad]


def _fused(t: Any, function: str, layer: Any, bn: Any, **keywords: Any) -> Any:
    for part in (layer, bn):
        for number, parameter in enumerate([*part.parameters(), *part.buffers()]):
            if parameter.is_floating_point():
                parameter.data = t.arange(float(parameter.numel())).reshape(tuple(parameter.shape)) / (number + 3) + 0.5
    made = getattr(t.nn.utils, function)(layer.eval(), bn.eval(), **keywords)
    return [made.weight, made.bias]


def _grouped(t: Any) -> Any:
    layer = _linear(t)
    group = t.nn.utils.parameters_grouping.ContiguousParamsGroup([list(layer.parameters())])
    layer(_x(t)).sum().backward()
    (buffer,), (slopes,) = group.grouped_parameters, group.grouped_parameters_grad
    return [buffer[:6], buffer[128:130], slopes[:6]]


CASES: Final = [
    Case(
        "nn.Module.register_backward_hook",
        lambda t: _hooked(t, lambda layer, hook: layer.register_backward_hook(hook)),
        lambda: [np.ones((2, 2), np.float32) @ np.array(WEIGHT, np.float32), np.ones((2, 2), np.float32)],
    ),
    Case(
        "nn.Module._register_state_dict_hook",
        lambda t: _with_hook(t, "_register_state_dict_hook", lambda module, found, prefix, data: {**found, "more": 1}),
    ),
    Case(
        "nn.Module.register_state_dict_pre_hook",
        lambda t: _with_hook(
            t, "register_state_dict_pre_hook", lambda module, *rest: module.register_buffer("more", module.bias * 2)
        ),
    ),
    Case(
        "nn.Module._register_load_state_dict_pre_hook",
        lambda t: _loaded(t, "_register_load_state_dict_pre_hook", _renamed),
    ),
    Case(
        "nn.Module.register_load_state_dict_pre_hook",
        lambda t: _loaded(t, "register_load_state_dict_pre_hook", lambda module, *rest: _renamed(*rest)),
    ),
    Case(
        "nn.Module.register_load_state_dict_post_hook",
        lambda t: _loaded(t, "register_load_state_dict_post_hook", _forgiving, missing=True),
    ),
    Case("nn.Module.modules", _twice),
    Case("nn.Module.compile", lambda t: _refused(lambda: t.nn.Linear(1, 1).compile()), lambda: "NotImplementedError"),
    Case("nn.Module.load_state_dict", _arrays, _by_hand),
    Case("nn.Module.load_state_dict", lambda t: _arrays(t, assign=True), _by_hand),
    Case("nn.ModuleDict", lambda t: repr(t.nn.ModuleDict(modules={"a": t.nn.Linear(2, 3)}))),
    Case("nn.ParameterDict", lambda t: list(t.nn.ParameterDict(parameters={"a": t.nn.Parameter(t.ones(2))}).keys())),
    Case(
        "nn.modules.module.register_module_forward_hook",
        lambda t: _around(t, "register_module_forward_hook", lambda module, args, result: result * 2),
    ),
    Case(
        "nn.modules.module.register_module_forward_pre_hook",
        lambda t: _around(t, "register_module_forward_pre_hook", lambda module, args: (args[0] * 2,)),
    ),
    Case(
        "nn.modules.module.register_module_full_backward_hook",
        lambda t: _hooked(t, lambda layer, hook: t.nn.modules.module.register_module_full_backward_hook(hook)),
    ),
    Case(
        "nn.modules.module.register_module_backward_hook",
        lambda t: _hooked(t, lambda layer, hook: t.nn.modules.module.register_module_backward_hook(hook))[1:],
        lambda: [np.ones((2, 2), np.float32)],
    ),
    Case(
        "nn.modules.module.register_module_full_backward_pre_hook",
        lambda t: _hooked(
            t,
            lambda layer, hook: t.nn.modules.module.register_module_full_backward_pre_hook(
                lambda module, result: hook(module, (), result)
            ),
        ),
    ),
    *[
        Case(
            f"nn.modules.module.register_module_{kind}_registration_hook",
            partial(_registered, kind=kind),
        )
        for kind in ("parameter", "buffer", "module")
    ],
    Case("nn.modules.conv.Conv2d", lambda t: repr(t.nn.modules.conv.Conv2d(2, 3, 1))),
    Case("nn.modules.module.Module", lambda t: isinstance(t.nn.ReLU(), t.nn.modules.module.Module)),
    Case(
        "nn.modules.batchnorm._BatchNorm",
        lambda t: [isinstance(t.nn.BatchNorm2d(2), t.nn.modules.batchnorm._BatchNorm)],
    ),
    Case(
        "nn.modules.batchnorm._NormBase",
        lambda t: [isinstance(t.nn.InstanceNorm2d(2), t.nn.modules.batchnorm._NormBase)],
    ),
    Case(
        "nn.modules.conv._ConvNd",
        lambda t: [isinstance(layer, t.nn.modules.conv._ConvNd) for layer in (t.nn.Conv1d(1, 1, 1), t.nn.ReLU())],
    ),
    Case("nn.modules.rnn.RNNBase", lambda t: issubclass(t.nn.LSTM, t.nn.modules.rnn.RNNBase)),
    Case("nn.modules.utils._pair", lambda t: [t.nn.modules.utils._pair(2), t.nn.modules.utils._pair([1, 2])]),
    *[Case("nn.RNNBase", partial(_recurrent, mode=mode)) for mode in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")],
    Case(
        "nn.RNNCellBase",
        lambda t: {key: list(value.shape) for key, value in t.nn.RNNCellBase(3, 2, True, 4).state_dict().items()},
    ),
    Case("nn.LazyLinear", lambda t: _lazy(t, "LazyLinear", 4, shape=(2, 3))),
    *[
        Case(
            f"nn.Lazy{kind}{rank}d",
            partial(_lazy_ranked, kind=kind, rank=rank),
        )
        for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
        for rank in (1, 2, 3)
    ],
    Case("nn.UninitializedParameter", lambda t: repr(t.nn.UninitializedParameter())),
    Case("nn.UninitializedBuffer", lambda t: repr(t.nn.LazyBatchNorm1d().running_mean)),
    Case("nn.parameter.UninitializedParameter", lambda t: repr(t.nn.parameter.UninitializedParameter())),
    Case("nn.Embedding", lambda t: t.nn.Embedding(2, 3, _weight=t.tensor(WEIGHT), _freeze=True)(t.tensor([1, 0]))),
    Case(
        "nn.Embedding",
        lambda t: [t.nn.Embedding(2, 3, _freeze=freeze).weight.requires_grad for freeze in (False, True)],
    ),
    Case("nn.Hardtanh", _hardtanh),
    Case("nn.AdaptiveLogSoftmaxWithLoss", _adaptive),
    *[
        Case(f"nn.init.{name}", partial(_filled, name=name, shape=(3, 4), arguments=rest))
        for name, rest in (
            *[(each, ()) for each in ("uniform", "normal", "eye", "orthogonal", "xavier_uniform", "xavier_normal")],
            *[("constant", (2.5,)), ("kaiming_uniform", ()), ("kaiming_normal", ()), ("sparse", (0.5,))],
        )
    ],
    Case("nn.init.dirac", lambda t: _filled(t, "dirac", (2, 2, 3))),
    Case("nn.utils.parametrize.register_parametrization", _parametrized),
    Case("nn.utils.parametrize.is_parametrized", _is_parametrized),
    Case("nn.utils.parametrize.remove_parametrizations", lambda t: [_removed(t, True), _removed(t, False)]),
    Case("nn.utils.parametrize.cached", _cached),
    Case("nn.utils.parametrize.transfer_parametrizations_and_params", _transferred),
    Case(
        "nn.utils.parametrize.type_before_parametrizations",
        lambda t: t.nn.utils.parametrize.type_before_parametrizations(_symmetric(t)) is t.nn.Linear,
    ),
    Case(
        "nn.utils.parametrize.ParametrizationList",
        lambda t: isinstance(_symmetric(t).parametrizations.weight, t.nn.utils.parametrize.ParametrizationList),
    ),
    *[Case("nn.utils.parametrizations.weight_norm", partial(_normed, name="weight_norm", dim=d)) for d in (0, 1)],
    Case("nn.utils.parametrizations.spectral_norm", _spectral, tolerance=1e-4),
    Case("nn.utils.parametrizations.orthogonal", _orthogonal),
    Case("nn.utils.prune.l1_unstructured", lambda t: _pruned(t, "l1_unstructured", 0.5)),
    Case(
        "nn.utils.prune.l1_unstructured",
        lambda t: _pruned(t, "l1_unstructured", amount=2, importance_scores=t.arange(6.0).reshape(2, 3)),
    ),
    Case("nn.utils.prune.ln_structured", lambda t: _pruned(t, "ln_structured", 1, n=2, dim=0)),
    Case("nn.utils.prune.ln_structured", lambda t: _pruned(t, "ln_structured", amount=0.3, n=1, dim=-1)),
    Case("nn.utils.prune.random_unstructured", lambda t: _randomly(t, "random_unstructured", 0.5)),
    Case("nn.utils.prune.random_structured", lambda t: _randomly(t, "random_structured", 1, 1)),
    Case("nn.utils.prune.custom_from_mask", lambda t: _pruned(t, "custom_from_mask", mask=_mask(t))),
    Case("nn.utils.prune.identity", lambda t: _pruned(t, "identity")),
    Case("nn.utils.prune.global_unstructured", _globally),
    Case("nn.utils.prune.remove", _no_longer_pruned),
    Case("nn.utils.prune.is_pruned", _no_longer_pruned),
    Case("nn.utils.prune.BasePruningMethod", _own_method),
    Case("nn.utils.prune.PruningContainer", _own_method),
    *[
        Case(
            f"nn.utils.prune.{name}",
            partial(_left, name=name, rest=rest),
        )
        for name, rest in (("L1Unstructured", (4,)), ("LnStructured", (1, 2, 0)), ("Identity", ()))
    ],
    *[
        Case(
            f"nn.utils.prune.{name}",
            partial(_number_pruned, name=name, rest=rest),
        )
        for name, rest in (("RandomUnstructured", (2,)), ("RandomStructured", (1, 0)))
    ],
    Case("nn.utils.prune.CustomFromMask", lambda t: _prune(t).CustomFromMask(_mask(t)).prune(_x(t))),
    Case("nn.utils.clip_grad_norm_", lambda t: _clipped(t, "clip_grad_norm_", 1.0, foreach=True)),
    Case("nn.utils.clip_grad_norm", lambda t: _clipped(t, "clip_grad_norm", 1.0, 1.0, foreach=False)),
    Case("nn.utils.clip_grad_value_", lambda t: _clipped(t, "clip_grad_value_", 1.0, foreach=False)),
    Case("nn.utils.get_total_norm", _with_norm),
    Case("nn.utils.clip_grads_with_norm_", _with_norm),
    Case(
        "nn.utils.fuse_conv_bn_eval",
        lambda t: _fused(t, "fuse_conv_bn_eval", t.nn.Conv2d(2, 3, 2), t.nn.BatchNorm2d(3)),
    ),
    Case(
        "nn.utils.fuse_conv_bn_eval",
        lambda t: _fused(t, "fuse_conv_bn_eval", t.nn.ConvTranspose1d(2, 3, 2), t.nn.BatchNorm1d(3), transpose=True),
    ),
    Case(
        "nn.utils.fuse_linear_bn_eval",
        lambda t: _fused(t, "fuse_linear_bn_eval", t.nn.Linear(2, 3), t.nn.BatchNorm1d(3)),
    ),
    Case(
        "nn.utils.fuse_conv_bn_weights",
        lambda t: list(
            t.nn.utils.fuse_conv_bn_weights(t.ones(2, 3, 1), None, t.ones(2), t.tensor([4.0, 9]), 0.0, None, t.ones(2))
        ),
    ),
    Case(
        "nn.utils.fuse_linear_bn_weights",
        lambda t: list(
            t.nn.utils.fuse_linear_bn_weights(t.ones(2, 3), None, t.ones(2), t.ones(2), 0.0, t.ones(2), t.ones(2))
        ),
    ),
    Case(
        "nn.utils.parameters_grouping.ContiguousParamsGroup",
        _grouped,
        lambda: [
            np.array(WEIGHT, np.float32).reshape(-1),
            np.array([0.5, -0.5], np.float32),
            np.tile(np.array(X, np.float32).sum(0), 2),
        ],
    ),
    Case(
        "nn.functional.depend",
        lambda t: [
            t.nn.functional.depend(_x(t), t.ones(2)),
            t.nn.Graph.trace(lambda x: t.nn.functional.depend(x, [x.exp(), x.sum()]))(_x(t)),
        ],
        lambda: [np.array(X, np.float32)] * 2,
    ),
]
