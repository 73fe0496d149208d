"""Names of files, of memory, of kinds of tensors and of switches."""

from __future__ import annotations

import io
import os
import tempfile
import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .case import Case


def _quietly(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Without PyTorch's warnings of names that it wants to give up."""

    def called(t: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(t)

    return called


def _saved_and_loaded(t: Any) -> Any:
    file = io.BytesIO()
    t.save({"x": t.arange(3.0), "n": 3, "s": "text", "l": [t.ones(2, dtype=t.int64), None, 1.5]}, file)
    file.seek(0)
    return t.load(file)


def _saved_by_name(t: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.pt" if t.__name__ == "torch" else "state.npz")
        t.save(t.nn.Sequential(t.nn.Flatten(), t.nn.BatchNorm1d(3)).state_dict(), path)
        return dict(t.load(path, map_location="cpu", weights_only=True))


def _shares(t: Any) -> Any:
    x = t.arange(6.0).reshape(2, 3)
    y = x[1]
    memory = x.untyped_storage()
    return [
        memory.data_ptr() == y.untyped_storage().data_ptr(),
        memory.data_ptr() == x.data_ptr(),
        memory.nbytes(),
        memory.size(),
        len(memory),
        memory.device.type,
        memory.element_size(),
        y.storage_offset(),
        t.is_storage(memory),
        t.is_storage(x),
        x.clone().untyped_storage().data_ptr() == memory.data_ptr(),
    ]


def _typed_storage(t: Any) -> Any:
    x = t.arange(4, dtype=t.int32)[2:]
    memory = x.storage()
    return [
        memory.tolist(),
        memory.size(),
        memory.nbytes(),
        memory[1],
        memory.untyped().nbytes(),
        memory.dtype == t.int32,
    ]


def _defaults(t: Any) -> Any:
    try:
        t.set_default_tensor_type("torch.DoubleTensor")
        first = t.ones(2)
        t.set_default_tensor_type(t.FloatTensor)
        return [first, t.ones(2), str(t.get_default_device())]
    finally:
        t.set_default_dtype(t.float32)


def _determinism(t: Any) -> Any:
    found: list[Any] = [t.get_deterministic_debug_mode(), t.are_deterministic_algorithms_enabled()]
    try:
        t.use_deterministic_algorithms(True)
        found += [t.get_deterministic_debug_mode(), t.are_deterministic_algorithms_enabled()]
        t.use_deterministic_algorithms(True, warn_only=True)
        found += [t.get_deterministic_debug_mode(), t.is_deterministic_algorithms_warn_only_enabled()]
        for mode in (0, "warn", 2, "error", "default", 1):
            t.set_deterministic_debug_mode(mode)
            found += [t.get_deterministic_debug_mode(), t.is_deterministic_algorithms_warn_only_enabled()]
    finally:
        t.use_deterministic_algorithms(False)
    return [*found, t.get_deterministic_debug_mode()]


def _drawn(t: Any) -> Any:
    """The facts about a distribution that do not depend on random numbers."""
    wide = t.empty(5, dtype=t.float64)
    results = [
        t.rand(5, out=wide),
        t.randn(5, out=wide),
        t.normal(0.0, 1.0, (5,), out=wide),
        t.normal(t.zeros(5), 1.0, out=t.empty(5)),
        t.randint(3, 5, (5,), out=wide),
        t.randperm(5, out=t.empty(5, dtype=t.int32)),
        t.bernoulli(t.ones(5), out=t.empty(5)),
        t.multinomial(t.ones(5), 5, out=t.empty(5, dtype=t.int64)),
    ]
    kinds = [[str(result.dtype).split(".")[1], list(result.shape)] for result in results]
    return [kinds, results[1] is wide, results[5].sort()[0], results[6], results[7].sort()[0]]


_KINDS: Final = ["Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double"]


def _of_kind(kind: str) -> Callable[[Any], Any]:
    def call(t: Any) -> Any:
        make = getattr(t, f"{kind}Tensor")
        x = t.ones(2)
        made = [make([0, 1, 1]), make(2, 3).shape, make(), x.type(make), x.type(f"torch.{kind}Tensor")]
        return [*made, isinstance(x, make), isinstance(x, getattr(t.cuda, f"{kind}Tensor"))]

    return call


def _cuda_kind(kind: str) -> Callable[[Any], Any]:
    return lambda t: getattr(t.cuda, f"{kind}Tensor").is_cuda


def _from_torch(t: Any) -> Any:
    if t.__name__ == "torch":
        return [2.0, 2.0, 3.0]
    import torch

    theirs = torch.ones(2)
    ours = t.utils.tensor.from_torch(theirs)
    ours.add_(1)
    again = t.utils.tensor.to_torch(ours)
    seen = [ours[0].item(), theirs[0].item()]
    again.add_(1)
    return [*seen, theirs[0].item()]


# By name, the parameters of a distribution, and a value that it may have.
_DISTRIBUTIONS: Final[list[tuple[str, Callable[[Any], tuple[Any, ...]], Any]]] = [
    ("Beta", lambda t: (t.tensor(0.3), t.tensor(1.5)), 0.4),
    ("Binomial", lambda t: (3, t.tensor(0.3)), 2.0),
    ("Cauchy", lambda t: (t.tensor(0.3), t.tensor(1.5)), 0.4),
    ("Chi2", lambda t: (t.tensor(3.0),), 0.4),
    ("Dirichlet", lambda t: (t.tensor([0.3, 2.0]),), [0.4, 0.6]),
    ("Geometric", lambda t: (t.tensor(0.3),), 4.0),
    ("Gumbel", lambda t: (t.tensor(0.3), t.tensor(1.5)), 0.4),
    ("HalfCauchy", lambda t: (t.tensor(1.5),), 0.4),
    ("HalfNormal", lambda t: (t.tensor(1.5),), 0.4),
    ("LogNormal", lambda t: (t.tensor(0.3), t.tensor(1.5)), 0.4),
    ("NegativeBinomial", lambda t: (t.tensor(3.0), t.tensor(0.3)), 2.0),
    ("OneHotCategorical", lambda t: (t.tensor([0.3, 0.7]),), [0.0, 1.0]),
    ("OneHotCategoricalStraightThrough", lambda t: (t.tensor([0.3, 0.7]),), [0.0, 1.0]),
    ("Pareto", lambda t: (t.tensor(0.3), t.tensor(1.5)), 0.4),
    ("RelaxedBernoulli", lambda t: (t.tensor(0.3), t.tensor(0.5)), 0.4),
    ("InverseGamma", lambda t: (t.tensor(3.0), t.tensor(1.5)), 0.4),
    ("FisherSnedecor", lambda t: (t.tensor(3.0), t.tensor(1.5)), 0.4),
    ("Multinomial", lambda t: (3, t.tensor([0.25, 0.75])), [1.0, 2.0]),
    ("RelaxedOneHotCategorical", lambda t: (t.tensor(0.5), t.tensor([0.25, 0.75])), [0.4, 0.6]),
    ("StudentT", lambda t: (t.tensor(3.0), t.tensor(1.5)), 0.4),
    ("Weibull", lambda t: (t.tensor(0.3), t.tensor(1.5)), 0.4),
]


def _log_prob(name: str, parameters: Callable[[Any], tuple[Any, ...]], value: Any) -> Callable[[Any], Any]:
    return lambda t: getattr(t.distributions, name)(*parameters(t)).log_prob(t.tensor(value))


def _transform(name: str, *arguments: Any) -> Callable[[Any], Any]:
    return lambda t: getattr(t.distributions, name)(*arguments)(t.tensor([0.5, 2.0]))


CASES: Final = [
    *[Case(f"distributions.{name}", _log_prob(name, make, value)) for name, make, value in _DISTRIBUTIONS],
    Case(
        "distributions.MixtureSameFamily",
        lambda t: t.distributions.MixtureSameFamily(
            t.distributions.Categorical(t.tensor([0.25, 0.75])), t.distributions.Exponential(t.tensor([0.5, 2.0]))
        ).log_prob(t.tensor(2.0)),
    ),
    Case(
        "distributions.TransformedDistribution",
        lambda t: t.distributions.TransformedDistribution(
            t.distributions.Normal(t.tensor(0.0), t.tensor(1.0)), [t.distributions.transforms.ExpTransform()]
        ).log_prob(t.tensor(2.0)),
    ),
    Case(
        "distributions.ComposeTransform",
        lambda t: t.distributions.ComposeTransform([t.distributions.ExpTransform()]).inv(t.tensor(2.0)),
    ),
    Case("distributions.Transform", lambda t: t.distributions.Transform().bijective, lambda: True),
    *[
        Case(f"distributions.{name}", _transform(name))
        for name in ("AbsTransform", "ExpTransform", "SigmoidTransform", "SoftplusTransform", "TanhTransform")
    ],
    Case("distributions.AffineTransform", _transform("AffineTransform", 1.0, 2.0)),
    Case("distributions.PowerTransform", lambda t: t.distributions.PowerTransform(t.tensor(2.0))(t.tensor([0.5, 2.0]))),
    Case("load", _saved_and_loaded),
    Case("save", _saved_by_name),
    Case("Tensor.untyped_storage", _shares),
    Case("UntypedStorage", lambda t: isinstance(t.ones(1).untyped_storage(), t.UntypedStorage)),
    Case("Tensor.storage", _quietly(_typed_storage)),
    Case("TypedStorage", _quietly(lambda t: isinstance(t.ones(1).storage(), t.TypedStorage))),
    Case("is_storage", _quietly(lambda t: [t.is_storage(t.ones(2).storage()), t.is_storage(3)])),
    Case("set_default_tensor_type", _quietly(_defaults)),
    Case("get_default_device", lambda t: str(t.get_default_device())),
    *[Case(f"{kind}Tensor", _of_kind(kind)) for kind in _KINDS],
    *[Case(f"cuda.{kind}Tensor", _cuda_kind(kind)) for kind in _KINDS],
    Case("Tensor", lambda t: [t.Tensor(2, 3, device="cpu").shape, t.Tensor(), t.Tensor([1, 2], device="cpu")]),
    Case("Tensor.fill_", lambda t: t.ones(2).fill_(np.array(2.5)), lambda: np.full(2, 2.5, np.float32)),
    Case("Tensor.type", lambda t: t.ones(2).type().replace("torch.", "vmflow.")),
    Case("normal", _drawn),
    Case("tensor", lambda t: t.tensor([1], pin_memory=False)),
    Case("Tensor.to", lambda t: t.ones(2).to(t.ones(1, dtype=t.float64))),
    Case("device", lambda t: t.ones(2, device="auto").cpu(), lambda: np.ones(2, np.float32)),
    Case("use_deterministic_algorithms", _determinism),
    Case("are_deterministic_algorithms_enabled", lambda t: t.are_deterministic_algorithms_enabled()),
    Case("is_deterministic_algorithms_warn_only_enabled", lambda t: t.is_deterministic_algorithms_warn_only_enabled()),
    Case("set_deterministic_debug_mode", lambda t: t.set_deterministic_debug_mode(0)),
    Case("get_deterministic_debug_mode", lambda t: t.get_deterministic_debug_mode()),
    Case("set_float32_matmul_precision", lambda t: t.set_float32_matmul_precision("highest")),
    Case("OutOfMemoryError", lambda t: issubclass(t.cuda.OutOfMemoryError, t.OutOfMemoryError)),
    Case("cuda.OutOfMemoryError", lambda t: t.cuda.OutOfMemoryError is t.OutOfMemoryError),
    Case("Event", lambda t: callable(t.Event)),
    Case("Stream", lambda t: callable(t.Stream)),
    Case("GradScaler", lambda t: t.GradScaler is t.amp.GradScaler, lambda: True),
    Case("ModuleDict", lambda t: t.ModuleDict is t.nn.ModuleDict, lambda: True),
    Case("ParameterDict", lambda t: t.ParameterDict is t.nn.ParameterDict, lambda: True),
    Case("utils.tensor.from_torch", _from_torch, lambda: [2.0, 2.0, 3.0]),
    Case("utils.tensor.to_torch", _from_torch, lambda: [2.0, 2.0, 3.0]),
    Case(
        "utils.data.DataLoader",
        lambda t: list(t.utils.data.DataLoader(t.arange(4), 2, pin_memory=False, pin_memory_device="")),
    ),
    Case(
        "utils.data.distributed.DistributedSampler",
        lambda t: list(
            t.utils.data.distributed.DistributedSampler([1, 2, 3, 4], num_replicas=2, rank=1, shuffle=False)
        ),
    ),
    Case("utils.data.dataloader.default_collate", lambda t: t.utils.data.dataloader.default_collate([1, 2])),
    Case("utils.data.dataloader.DataLoader", lambda t: len(t.utils.data.dataloader.DataLoader([1, 2, 3]))),
]
