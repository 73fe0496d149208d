"""A small GPT over characters: tied weights, groups of weights by dimension, accumulated gradients, top-k sampling."""
# mypy: ignore-errors

import math
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional as F

TEXT = "one grey goat ate nine red plums, then two brown hens hid the pits. "
CHARACTERS = "".join(sorted(set(TEXT)))
INDICES = {character: index for index, character in enumerate(CHARACTERS)}


@dataclass(frozen=True)
class Sizes:
    vocabulary: int = len(CHARACTERS)
    context: int = 20
    width: int = 36
    heads: int = 3
    layers: int = 2
    dropout: float = 0.0


class MaskedAttention(nn.Module):
    """Attention of every position to itself and to the positions before it."""

    def __init__(self, sizes):
        super().__init__()
        self.heads, self.dropout = sizes.heads, sizes.dropout
        self.query, self.key, self.value, self.mix = (nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(4))

    def split(self, hidden):
        return hidden.unflatten(2, (self.heads, -1)).swapaxes(1, 2)

    def forward(self, hidden):
        attended = F.scaled_dot_product_attention(
            self.split(self.query(hidden)),
            self.split(self.key(hidden)),
            self.split(self.value(hidden)),
            dropout_p=self.dropout * self.training,
            is_causal=True,
        )
        return self.mix(attended.swapaxes(1, 2).reshape(hidden.shape))


class DecoderLayer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.dropout = sizes.dropout
        self.attention_norm = nn.LayerNorm(sizes.width, bias=False)
        self.attention = MaskedAttention(sizes)
        self.feedforward_norm = nn.LayerNorm(sizes.width)
        self.expand = nn.Linear(sizes.width, 3 * sizes.width)
        self.contract = nn.Linear(3 * sizes.width, sizes.width, bias=False)

    def forward(self, hidden):
        hidden = hidden + F.dropout(self.attention(self.attention_norm(hidden)), self.dropout, self.training)
        expanded = F.gelu(self.expand(self.feedforward_norm(hidden)), approximate="tanh")
        return hidden + F.dropout(self.contract(expanded), self.dropout, self.training)


class CharacterGPT(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.characters = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Embedding(sizes.context, sizes.width)
        self.layers = nn.Sequential(*(DecoderLayer(sizes) for _ in range(sizes.layers)))
        self.final_norm = nn.LayerNorm(sizes.width, bias=False)
        self.scores = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.scores.weight = self.characters.weight
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.1 / math.sqrt(sizes.layers))

    def forward(self, indices):
        length = indices.shape[-1]
        if length > self.sizes.context:
            raise ValueError(f"{length} characters do not fit in a context of {self.sizes.context}")
        hidden = self.characters(indices) + self.positions.weight.narrow(0, 0, length)
        return self.scores(self.final_norm(self.layers(hidden)))

    def with_context(self, context):
        """A model with the same weights and a shorter context."""
        other = CharacterGPT(replace(self.sizes, context=context))
        weights = self.state_dict()
        weights["positions.weight"] = weights["positions.weight"][:context]
        other.load_state_dict(weights)
        return other

    @torch.inference_mode()
    def continuation(self, indices, count, among, temperature=1.0):
        """`indices` and `count` more, each drawn from the likeliest `among`."""
        for _ in range(count):
            scores = self(indices[:, -self.sizes.context :])[:, -1]
            best, candidates = scores.div(temperature).topk(min(among, self.sizes.vocabulary), dim=1)
            drawn = best.softmax(dim=1).multinomial(1)
            indices = torch.hstack([indices, candidates.gather(1, drawn)])
        return indices


def encode(text):
    return torch.tensor([INDICES[character] for character in text])


def decode(indices):
    return "".join(CHARACTERS[index] for index in indices.tolist())


def windows(number, length, count=5):
    """Windows of the text, and the same windows one character later."""
    indices = encode(TEXT * 2)
    starts = (number * 23 + torch.arange(count) * 13) % len(TEXT)
    found = indices[starts[:, None] + torch.arange(length + 1)]
    return found[:, :-1], found[:, 1:]


def mean_loss(model, indices, following):
    return F.cross_entropy(model(indices).flatten(0, 1), following.flatten())


def optimizer_for(model, device):
    """AdamW that decays matrices, and leaves vectors alone."""
    by_dimension = {}
    for weight in model.parameters():
        by_dimension.setdefault(weight.dim(), []).append(weight)
    for dimension, weights in sorted(by_dimension.items()):
        print(f"dimension {dimension}: {len(weights)} tensors of {sum(map(torch.numel, weights))} elements")
    options = {"fused": True} if device.type == "cuda" else {}
    groups = [
        {"params": weights, "weight_decay": 0.05 if dimension > 1 else 0.0}
        for dimension, weights in sorted(by_dimension.items())
    ]
    return torch.optim.AdamW(groups, lr=0.01, betas=(0.88, 0.97), **options)


def build():
    return CharacterGPT(Sizes())


def train(model):
    device = torch.device("cpu")
    model.to(device).train()
    optimizer = optimizer_for(model, device)
    parts, steps = 3, 36
    for step in range(steps):
        rate = 0.018 * min((step + 1) / 5, 1 - 0.9 * step / steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        total = 0.0
        for part in range(parts):
            indices, following = windows(parts * step + part, model.sizes.context)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
                loss = mean_loss(model, indices.to(device), following.to(device)) / parts
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 0.8)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step:2d}: rate {rate:.5f}, loss {total:.4f}")
    print(f"weights are still tied: {model.scores.weight is model.characters.weight}")
    model.eval()
    start = encode("one ").unsqueeze(0)
    print(f"likeliest: {decode(model.continuation(start, 40, among=1)[0])}")
    drawn = model.continuation(start.tile(3, 1), 7, among=4, temperature=0.9)
    print(f"drawn: {tuple(drawn.shape)}, in the vocabulary: {bool(((drawn >= 0) & (drawn < len(CHARACTERS))).all())}")
    short = model.with_context(12).eval()
    indices, following = windows(1, 12)
    with torch.no_grad():
        one, other = mean_loss(model, indices, following), mean_loss(short, indices, following)
    print(f"context {short.positions.num_embeddings}: loss {other:.4f}, as before: {torch.allclose(one, other)}")


if __name__ == "__main__":
    torch.manual_seed(64)
    train(build())
