"""MultiheadAttention and the transformer against PyTorch and, where it is missing, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import nn

CAUSAL = np.triu(np.ones((5, 5), bool), 1)


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def _given(module: Any, array: Any) -> Any:
    return None if array is None else module.tensor(array)


def _compare(mine: list[Any], theirs: list[Any]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


def _run(module: Any, network: Any, arrays: list[Any], call: Any) -> list[Any]:
    """Results, and the gradients of leaves and parameters."""
    network.zero_grad()
    leaves = [module.tensor(array, requires_grad=True) for array in arrays]
    results = [value for value in call(module, network, *leaves) if value is not None]
    sum((result * module.tensor(_numbers(*result.shape, seed=9))).sum() for result in results).backward()
    return [*results, *[leaf.grad for leaf in (*leaves, *network.parameters())]]


def _copied(mine: nn.Module, others: Any) -> None:
    mine.load_state_dict({name: flow.tensor(value.numpy()) for name, value in others.state_dict().items()})
    assert list(mine.state_dict()) == list(others.state_dict())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True, "bias": False},
        {"kdim": 3, "vdim": 4},
        {"add_bias_kv": True},
        {"add_zero_attn": True, "batch_first": True},
        {"kdim": 3, "vdim": 4, "add_bias_kv": True, "add_zero_attn": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("weights", ["none", "mean", "each"])
@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
def test_attention_against_pytorch(options: dict[str, Any], weights: str) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # on small tensors more of them only wait for each other
    other, model = torch.nn.MultiheadAttention(8, 2, **options), nn.MultiheadAttention(8, 2, **options)
    _copied(model, other)
    shapes = [(5, 2, 8), (6, 2, options.get("kdim", 8)), (6, 2, options.get("vdim", 8))]
    if options.get("batch_first"):
        shapes = [(2, shape[0], shape[2]) for shape in shapes]
    arrays = [_numbers(*shape) for shape in shapes]
    allowed = np.random.default_rng(1).random((5, 6)) < 0.3
    allowed[:, 0] = False
    padding = np.zeros((2, 6), bool)
    padding[1, 4:] = True
    masks = [(None, None), (allowed, None), (None, padding), (allowed, padding), (_numbers(4, 5, 6), padding)]
    for attended, padded in masks:

        def call(module: Any, network: Any, *leaves: Any, one: Any = attended, two: Any = padded) -> Any:
            return network(
                *leaves,
                key_padding_mask=_given(module, two),
                need_weights=weights != "none",
                attn_mask=_given(module, one),
                average_attn_weights=weights == "mean",
            )

        _compare(_run(flow, model, arrays, call), _run(torch, other, arrays, call))


@pytest.mark.parametrize("batched", [True, False])
def test_attention_to_itself_against_pytorch(batched: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # on small tensors more of them only wait for each other
    other, model = torch.nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2)
    _copied(model, other)
    arrays = [_numbers(5, 2, 8) if batched else _numbers(5, 8)]

    def call(module: Any, network: Any, x: Any) -> Any:
        return network(x, x, x, need_weights=False, attn_mask=module.tensor(CAUSAL), is_causal=True)

    _compare(_run(flow, model, arrays, call), _run(torch, other, arrays, call))


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "activation": "gelu", "batch_first": True}], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_transformer_against_pytorch(options: dict[str, Any], training: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # on small tensors more of them only wait for each other
    sizes: dict[str, Any] = {
        "d_model": 8,
        "nhead": 2,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "dim_feedforward": 16,
    }
    other = torch.nn.Transformer(**sizes, dropout=0.0, **options).train(training)
    model = nn.Transformer(**sizes, dropout=0.0, **options).train(training)
    _copied(model, other)
    shapes = [(2, 6, 8), (2, 5, 8)] if options.get("batch_first") else [(6, 2, 8), (5, 2, 8)]
    padding = np.zeros((2, 6), bool)
    padding[1, 4:] = True

    def call(module: Any, network: Any, src: Any, tgt: Any) -> Any:
        causal = network.generate_square_subsequent_mask(5)
        masks = {"src_key_padding_mask": module.tensor(padding), "memory_key_padding_mask": module.tensor(padding)}
        first = network(src, tgt, tgt_mask=causal, tgt_is_causal=True, **masks)
        return [first, network(src, tgt, src_mask=module.tensor(_numbers(6, 6)), tgt_mask=causal)]

    arrays = [_numbers(*shape) for shape in shapes]
    _compare(_run(flow, model, arrays, call), _run(torch, other, arrays, call))


@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
@pytest.mark.parametrize("options", [{"bias": False}, {"activation": "gelu"}], ids=str)
def test_layers_against_pytorch(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)  # on small tensors more of them only wait for each other
    other = getattr(torch.nn, name)(8, 2, 16, 0.0, **options)
    model = getattr(nn, name)(8, 2, 16, 0.0, **options)
    _copied(model, other)
    arrays = [_numbers(5, 2, 8)] if "Encoder" in name else [_numbers(5, 2, 8), _numbers(6, 2, 8)]
    _compare(
        *[
            _run(module, value, arrays, lambda _, x, *leaves: [x(*leaves)])
            for module, value in ((flow, model), (torch, other))
        ]
    )


# Without another framework


def _oracle(model: nn.MultiheadAttention, q: Any, k: Any, v: Any, ignored: Any) -> tuple[Any, Any]:
    """(length, features) each, head by head."""
    state = {name: value.numpy().astype(np.float64) for name, value in model.state_dict().items()}
    weights, biases = np.split(state["in_proj_weight"], 3), np.split(state["in_proj_bias"], 3)
    of_q, of_k, of_v = (x @ w.T + b for x, w, b in zip((q, k, v), weights, biases, strict=True))
    parts, each = [], []
    for head in range(model.num_heads):
        part = slice(head * model.head_dim, (head + 1) * model.head_dim)
        scores = np.where(ignored, 0, np.exp(of_q[:, part] @ of_k[:, part].T / np.sqrt(model.head_dim)))
        each.append(scores / scores.sum(1, keepdims=True))
        parts.append(each[-1] @ of_v[:, part])
    result = np.concatenate(parts, 1) @ state["out_proj.weight"].T + state["out_proj.bias"]
    return result, np.mean(each, 0)


def test_attention_against_loops() -> None:
    model = nn.MultiheadAttention(6, 3)
    with flow.no_grad():
        model.in_proj_bias.copy_(flow.tensor(_numbers(18)))
    x, memory = _numbers(5, 6), _numbers(5, 6, seed=1)
    result, weights = model(flow.tensor(x), flow.tensor(memory), flow.tensor(memory), attn_mask=flow.tensor(CAUSAL))
    expected, mean = _oracle(model, x, memory, memory, CAUSAL)
    np.testing.assert_allclose(result.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert weights is not None
    np.testing.assert_allclose(weights.detach().numpy(), mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 0, 8), (0, 2, 8)])
def test_attention_of_an_empty_batch_or_query(shape: tuple[int, int, int]) -> None:
    key = flow.ones(3, shape[1], 8)
    result, weights = nn.MultiheadAttention(8, 2)(flow.ones(shape), key, key)
    assert weights is not None
    assert (result.shape, weights.shape) == (shape, (shape[1], shape[0], 3))


def test_dropout_acts_in_training_only() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.5), 2, nn.LayerNorm(8))
    x = flow.tensor(_numbers(5, 2, 8))
    assert (model(x).detach().numpy() != model(x).detach().numpy()).any()
    model.eval()
    np.testing.assert_array_equal(model(x).detach().numpy(), model(x).detach().numpy())
    assert len(list(model.parameters())) == 2 * 12 + 2
    attention = nn.MultiheadAttention(8, 2, dropout=0.5)
    assert 0.2 < (attention(x, x, x, average_attn_weights=False)[1].detach().numpy() == 0).mean() < 0.8


@pytest.mark.parametrize("shape", [(0, 2, 4), (3, 0, 4)])
def test_no_elements_or_sequences(shape: tuple[int, ...]) -> None:
    x = flow.ones(shape)
    assert nn.MultiheadAttention(4, 2)(x, x, x)[0].shape == shape
    assert nn.TransformerEncoderLayer(4, 2, 8)(x).shape == shape


def test_later_elements_do_not_change_earlier_results() -> None:
    """With the causal mask, given as numbers, as bools or by name, later positions change nothing earlier."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2).eval()
    x = _numbers(1, 5, 8)
    changed = x.copy()
    changed[:, 3:] += 1
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    assert mask.numpy().tolist() == np.where(CAUSAL, -np.inf, 0).tolist()
    for arguments in ({"mask": mask}, {"mask": flow.tensor(CAUSAL)}, {"mask": mask, "is_causal": True}):
        before, after = (model(flow.tensor(value), **arguments).detach().numpy() for value in (x, changed))
        np.testing.assert_array_equal(before[:, :3], after[:, :3])
        assert (before[:, 3:] != after[:, 3:]).any()


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            ValueError,
            "embed_dim must be a positive multiple of num_heads, got 5 and 2",
            lambda x: nn.MultiheadAttention(5, 2),
        ),
        (ValueError, r"within \[0, 1\], got 2", lambda x: nn.MultiheadAttention(4, 2, 2)),
        (
            ValueError,
            r"\(length, batch, features\) of 4, 4 and 4 .* \[3, 1, 4\], \[3, 1, 2\]",
            lambda x: _attend(x, x[..., :2], x),
        ),
        (ValueError, "expected a query", lambda x: _attend(x, x[:2], x)),
        (ValueError, "is_causal=True needs an attn_mask", lambda x: _attend(x, x, x, is_causal=True)),
        (
            ValueError,
            r"attn_mask must have shape \[3, 3\] or \[2, 3, 3\], got \[2, 3\]",
            lambda x: _attend(x, x, x, attn_mask=flow.ones(2, 3)),
        ),
        (ValueError, r"key_padding_mask must have shape \[1, 3\], got \[3\]", lambda x: _attend(x, x, x, flow.ones(3))),
        (
            TypeError,
            "attn_mask must be of bools or numbers, not int64",
            lambda x: _attend(x, x, x, attn_mask=flow.ones(3, 3).long()),
        ),
        (
            ValueError,
            "activation must be 'relu', 'gelu' or a function, not 'sine'",
            lambda x: nn.TransformerEncoderLayer(4, 2, activation="sine"),
        ),
        (
            ValueError,
            r"equally many sequences, got \[3, 1, 4\] and \[3, 2, 4\]",
            lambda x: nn.Transformer(4, 2, 1, 1, 8)(x, x.expand(3, 2, 4)),
        ),
    ],
)
def test_bad_arguments(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        call(flow.ones(3, 1, 4))


def _attend(*args: Any, **kwargs: Any) -> Any:
    return nn.MultiheadAttention(4, 2)(*args, **kwargs)
