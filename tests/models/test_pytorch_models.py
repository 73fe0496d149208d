"""Models written for PyTorch run here after changing the import, with PyTorch's weights, and agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow

from .sources import GPT2, LENET, RESNET18, loaded

torch = pytest.importorskip("torch", reason="compares with PyTorch")

SOURCES = {"lenet": LENET, "resnet18": RESNET18, "gpt2": GPT2}


def twins(source: str) -> tuple[Any, Any, Any]:
    """The model on torch, the same on vmflow with its weights, and the arrays to feed."""
    torch.manual_seed(1)
    theirs_module, ours_module = loaded(source, "torch"), loaded(source, "vmflow")
    theirs, ours = theirs_module.build(), ours_module.build()
    state = {name: flow.tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    found = ours.load_state_dict(state)
    assert not found.missing_keys
    assert not found.unexpected_keys
    return theirs, ours, theirs_module.inputs(np.random.default_rng(2))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_forward_agrees(name: str, training: bool) -> None:
    theirs, ours, arrays = twins(SOURCES[name])
    expected = theirs.train(training)(*[torch.from_numpy(array) for array in arrays])
    found = ours.train(training)(*[flow.tensor(array) for array in arrays])
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=1e-4, rtol=1e-4)
    named = dict(ours.named_buffers())
    for buffer, value in theirs.named_buffers():
        np.testing.assert_allclose(named[buffer].numpy(), value.numpy(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_gradients_agree(name: str, training: bool) -> None:
    """In float64: rounding in float32 decides which of the units near zero pass a gradient on."""
    theirs, ours, arrays = twins(SOURCES[name])
    arrays = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays]
    expected = theirs.double().train(training)(*[torch.from_numpy(array) for array in arrays])
    found = ours.double().train(training)(*[flow.tensor(array) for array in arrays])
    weight = np.random.default_rng(3).standard_normal(tuple(expected.shape))
    (expected * torch.from_numpy(weight)).sum().backward()
    (found * flow.tensor(weight)).sum().backward()
    named = dict(ours.named_parameters())
    for parameter, value in theirs.named_parameters():
        scale = float(value.grad.abs().max()) + 1e-12
        difference = np.abs(named[parameter].grad.numpy() - value.grad.numpy()).max()
        assert difference <= 1e-9 * scale, f"{parameter}: gradients differ by {difference}, of {scale}"


@pytest.mark.parametrize("name", SOURCES)
def test_structure_and_names_agree(name: str) -> None:
    theirs, ours, _ = twins(SOURCES[name])
    assert [value for value, _ in ours.named_modules()] == [value for value, _ in theirs.named_modules()]
    assert [value for value, _ in ours.named_parameters()] == [value for value, _ in theirs.named_parameters()]
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)


def test_generated_text_agrees() -> None:
    """Greedy decoding takes the same tokens, for as long as no two are nearly as likely."""
    theirs, ours, (start,) = twins(GPT2)
    theirs.eval()
    ours.eval()
    expected = theirs.generate(torch.from_numpy(start), 12, top_k=20)
    found = ours.generate(flow.tensor(start), 12, top_k=20)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
