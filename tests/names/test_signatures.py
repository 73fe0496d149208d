"""vmflow takes the arguments that PyTorch takes; the exceptions are deliberate, and each has its reason."""

from __future__ import annotations

from typing import Final

import pytest

from .signatures import Missing, walk

torch = pytest.importorskip("torch", reason="compares with PyTorch")

pytestmark = pytest.mark.host

# Arguments that no function has, and why.
NOWHERE: Final = {
    "layout": "there is one layout, strided",
    "names": "dimensions have no names",
    "out_dtype": "a product has the dtype of its operands; cast them, or use autocast",
    "pickle_module": "files are not pickles",
    "pickle_protocol": "files are not pickles",
    "_use_new_zipfile_serialization": "files are in the safetensors format",
    "_disable_byteorder_record": "files are in the safetensors format",
    "cudnn_enable": "there is no cuDNN",
    "cudnn_enabled": "there is no cuDNN",
    "cache_size": "transforms of distributions keep nothing",
    "_preallocate_and_copy": "private to PyTorch",
    "_caller": "private to PyTorch",
    "_devices_kw": "private to PyTorch",
    "_internal": "private to PyTorch",
    "wrap_storage": "private to PyTorch",
    "orig_func": "PyTorch's way to decorate; enable_grad decorates as well",
    "grad_variables": "PyTorch's deprecated name of grad_tensors",
    "including_emulation": "nothing is emulated in bfloat16",
    "external": "events are told to graphs of the device by nobody but graphs",
}

# Names of positional arguments in PyTorch's stubs alone, in one of several overloads, or of functions that PyTorch has
# under two names with two spellings.
SPELLINGS: Final = frozenset(
    {
        *(
            "input",
            "input2",
            "size",
            "indices",
            "sections",
            "tensor_indices_or_sections",
            "split_size",
            "axis0",
            "axis1",
        ),
        *("element", "test_element", "ext_tensor", "type1", "type2", "other", "scalar", "scalar1", "scalar2", "tensor"),
        *("num", "values", "s", "min", "max", "mode"),
    }
)

# By name, arguments that are left out, and why.
HERE: Final = {
    "tril_indices requires_grad": "indices have no gradient",
    "triu_indices requires_grad": "indices have no gradient",
    "Tensor.cpu memory_format": "to(memory_format=) has it",
    "Tensor.cuda memory_format": "to(memory_format=) has it",
    "Tensor.new device other storage": "deprecated; new_tensor and new_empty take a device",
    "Tensor.set_ storage_offset stride": "takes a tensor; as_strided makes the view",
    "TypedStorage device dtype": "storages are those of tensors",
    "nn.init.ParamSpec default infer_variance": "a class of typing",
    "rrelu generator": "random numbers are the default generator's; see fork_rng",
    "rrelu_ generator": "random numbers are the default generator's; see fork_rng",
    "randint_like memory_format": "integers lie in order",
    "narrow_copy out": "copy_ of a view writes there",
    "random.fork_rng device_type": "one generator serves all devices",
}


def _explained(missing: Missing) -> set[str]:
    here = {argument for name, *arguments in map(str.split, HERE) if name == missing.name for argument in arguments}
    return here | NOWHERE.keys() | SPELLINGS


def test_every_argument_is_taken_or_left_out_for_a_reason() -> None:
    found = walk(torch)
    unexplained = [(missing.name, sorted(set(missing.arguments) - _explained(missing))) for missing in found]
    assert not [entry for entry in unexplained if entry[1]]


def test_every_reason_is_needed() -> None:
    found = walk(torch)
    lacking = {argument for missing in found for argument in missing.arguments}
    assert not (NOWHERE.keys() | SPELLINGS) - lacking
    names = {missing.name: missing.arguments for missing in found}
    for name, *arguments in map(str.split, HERE):
        assert set(arguments) <= set(names.get(name, ())), name
