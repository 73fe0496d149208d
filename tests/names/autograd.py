"""Names of automatic differentiation."""

from __future__ import annotations

import warnings
from typing import Any, Final

from .case import Case


def _modes(t: Any) -> list[bool]:
    """The state that each form of a mode reports."""
    found: list[bool] = []

    def look() -> None:
        found.extend([t.is_grad_enabled(), t.is_inference_mode_enabled()])

    for mode in (t.no_grad, t.no_grad(), t.enable_grad, t.enable_grad(), t.inference_mode, t.inference_mode(False)):
        mode(look)()
    for mode in (t.no_grad(), t.enable_grad(), t.inference_mode(), t.inference_mode(mode=False)):
        with mode:
            look()
    t.set_grad_enabled(False)
    look()
    t.set_grad_enabled(True)
    look()
    with t.autograd.grad_mode.set_grad_enabled(mode=False):
        look()
    return found


def _anomaly(t: Any) -> list[bool]:
    found: list[bool] = []
    with t.autograd.set_detect_anomaly(True):
        found.append(t.is_anomaly_enabled())
    with t.autograd.set_detect_anomaly(False, check_nan=True):
        found.append(t.is_anomaly_enabled())
    found.append(t.is_anomaly_enabled())
    return found


def _threads(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    with t.autograd.set_multithreading_enabled(False):
        (x * 2).sum().backward()
    return x.grad


def _leaf(t: Any, *shape: int) -> Any:
    size = 1
    for extent in shape:
        size *= extent
    return (t.arange(1, size + 1, dtype=t.float64) / size).reshape(shape).requires_grad_()


def _batched(t: Any) -> Any:
    x, w = _leaf(t, 2, 3), _leaf(t, 3)
    y = x.exp() * w
    rows = t.arange(24, dtype=t.float64).reshape(4, 2, 3)
    return t.autograd.grad([y, x.sin()], [x, w], [rows, rows * 2], is_grads_batched=True)


def _materialized(t: Any) -> Any:
    x, other = _leaf(t, 2), _leaf(t, 2, 2)
    return t.autograd.grad((x * x).sum(), (x, other), materialize_grads=True)


def _inputs(t: Any) -> list[Any]:
    x, w = _leaf(t, 2), _leaf(t, 2)
    y = x * w
    z = (y * y).sum()
    z.backward(retain_graph=True, inputs=[x])
    t.autograd.backward(z, retain_graph=True, inputs=[x, y])
    t.autograd.backward([z], [t.tensor(3.0, dtype=t.float64)], inputs=w)
    return [x.grad, w.grad, y.grad]


def _saved(t: Any) -> list[Any]:
    x = _leaf(t, 3)
    with t.autograd.graph.saved_tensors_hooks(lambda value: value * 2, lambda tensor: tensor.detach().clone()):
        y = (x * x).sum() + x.exp().sum()
    y.backward()
    return [x.grad]


def _on_cpu(t: Any) -> list[Any]:
    x = _leaf(t, 3)
    with t.autograd.graph.save_on_cpu(pin_memory=False):
        (x * x).sum().backward()
    return [x.grad]


def _disabled(t: Any) -> str:
    try:
        with t.autograd.graph.disable_saved_tensors_hooks("not here"), t.autograd.graph.save_on_cpu():
            pass
    except RuntimeError as error:
        return str(error)
    return "nothing was raised"


def _together(t: Any) -> list[Any]:
    seen: list[Any] = []
    x, w, other = _leaf(t, 2), _leaf(t, 2), _leaf(t, 2)
    handle = t.autograd.graph.register_multi_grad_hook([x, w, other], seen.append)
    (x * w).sum().backward()
    handle.remove()
    with t.autograd.graph.register_multi_grad_hook((x, w), lambda tensor: seen.append(tensor.shape[0]), mode="any"):
        (x * w * other).sum().backward()
    (x * w).sum().backward()
    return seen


def _edges(t: Any) -> list[Any]:
    x = _leaf(t, 3)
    y = x.exp()
    edge = t.autograd.graph.get_gradient_edge(y)
    at = t.autograd.grad((y * y).sum(), [edge, t.autograd.graph.get_gradient_edge(x)], retain_graph=True)
    return [*at, *t.autograd.grad([edge], [x], [t.ones(3, dtype=t.float64)]), edge.output_nr]


def _node_hooks(t: Any) -> list[Any]:
    x = _leaf(t, 3)
    y = x.exp()
    seen: list[Any] = [isinstance(y.grad_fn, t.autograd.graph.Node)]
    y.grad_fn.register_prehook(lambda given: (given[0] * 2,))
    y.grad_fn.register_hook(lambda given, gradients: seen.extend([*given, *gradients]))
    handle = y.grad_fn.register_hook(lambda given, gradients: (given[0] * 3,))
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    return [*seen, x.grad]


def _counted(t: Any) -> str:
    x = _leaf(t, 3)
    y = x * 2
    z = (y * y).sum()
    t.autograd.graph.increment_version(y)
    try:
        z.backward()
    except RuntimeError:
        return "refused"
    return "nothing was raised"


def _after_accumulation(t: Any) -> list[Any]:
    x, seen = _leaf(t, 3), []

    def hook(leaf: Any) -> None:
        seen.append(leaf.grad.clone())
        leaf.grad = None

    with x.register_post_accumulate_grad_hook(hook):
        (x * x).sum().backward()
        (x * 3).sum().backward()
    (x * 5).sum().backward()
    return [*seen, x.grad]


def _called(name: str) -> Any:
    def call(t: Any) -> list[Any]:
        function = t
        for part in name.split("."):
            function = getattr(function, part)
        layer = t.nn.Linear(2, 3)
        weights = {"weight": t.ones(3, 2).requires_grad_(), "bias": t.arange(3.0).requires_grad_()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PyTorch calls one of the names old
            result = function(layer, weights, (t.ones(1, 2),), strict=True)
        result.sum().backward()
        return [result, *[weight.grad for weight in weights.values()], layer.weight.grad]

    return call


def _stacked(t: Any) -> list[Any]:
    layers = [t.nn.BatchNorm1d(2) for _ in range(3)]
    parameters, buffers = t.func.stack_module_state(layers)
    return [parameters, buffers, [parameter.requires_grad for parameter in parameters.values()]]


def _checked(t: Any) -> list[bool]:
    x = _leaf(t, 3)
    settings: dict[str, Any] = {"check_undefined_grad": True, "check_grad_dtypes": True, "check_batched_grad": False}
    return [
        t.autograd.gradcheck(lambda value: (value * value).sin(), (x,), fast_mode=fast, masked=False, **settings)
        and t.autograd.gradgradcheck(
            lambda value: (value * value).sin(), (x,), gen_non_contig_grad_outputs=True, fast_mode=fast, **settings
        )
        for fast in (False, True)
    ]


CASES: Final = [
    Case("autograd.gradcheck", _checked),
    Case("autograd.gradgradcheck", _checked),
    Case("func.functional_call", _called("func.functional_call")),
    Case("nn.utils.stateless.functional_call", _called("nn.utils.stateless.functional_call")),
    Case("func.stack_module_state", _stacked),
    Case("autograd.grad", _batched),
    Case("autograd.grad", _materialized),
    Case("autograd.backward", _inputs),
    Case("Tensor.backward", _inputs),
    Case("autograd.graph.saved_tensors_hooks", _saved),
    Case("autograd.graph.save_on_cpu", _on_cpu),
    Case("autograd.graph.disable_saved_tensors_hooks", _disabled),
    Case("autograd.graph.register_multi_grad_hook", _together),
    Case("autograd.graph.get_gradient_edge", _edges),
    Case("autograd.graph.GradientEdge", _edges),
    Case("autograd.graph.Node.register_hook", _node_hooks),
    Case("autograd.graph.Node.register_prehook", _node_hooks),
    Case("autograd.graph.increment_version", _counted),
    Case("Tensor.register_post_accumulate_grad_hook", _after_accumulation),
    *[
        Case(name, _modes)
        for name in (
            "no_grad",
            "enable_grad",
            "inference_mode",
            "set_grad_enabled",
            "is_inference_mode_enabled",
            "autograd.inference_mode",
            "autograd.grad_mode.no_grad",
        )
    ],
    Case("autograd.set_detect_anomaly", _anomaly),
    Case("autograd.set_multithreading_enabled", _threads),
]
