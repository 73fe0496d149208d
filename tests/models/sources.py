"""Models as people write them for PyTorch, as text: run on torch as they are, on vmflow with the import changed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Final

LENET: Final = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class DigitClassifier(nn.Module):
    # Convolution and pooling at two scales, then three dense layers.

    def __init__(self, classes=10):
        super().__init__()
        self.near = nn.Conv2d(1, 6, kernel_size=5, padding=2)
        self.far = nn.Conv2d(6, 16, 5)
        widths = [16 * 5 * 5, 120, 84]
        self.dense = nn.ModuleList(nn.Linear(wide, narrow) for wide, narrow in zip(widths, widths[1:]))
        self.output = nn.Linear(widths[-1], classes)

    def features(self, images):
        for convolution, window in ((self.near, (2, 2)), (self.far, 2)):
            images = F.max_pool2d(F.relu(convolution(images)), window)
        return torch.flatten(images, 1)

    def forward(self, images):
        signal = self.features(images)
        for layer in self.dense:
            signal = F.relu(layer(signal))
        return self.output(signal)


def build():
    return DigitClassifier()


def inputs(generator):
    return (generator.standard_normal((4, 1, 28, 28)).astype("float32"),)
"""

RESNET18: Final = """
from collections import OrderedDict
from typing import Iterator, Optional, Sequence

import torch
from torch import Tensor, nn


def normed_conv(channels: int, width: int, size: int, stride: int = 1) -> nn.Sequential:
    # The kernel is odd and padded by its half, so that only the stride makes the picture smaller.
    convolution = nn.Conv2d(channels, width, kernel_size=size, stride=stride, padding=size // 2, bias=False)
    return nn.Sequential(OrderedDict(convolution=convolution, norm=nn.BatchNorm2d(width)))


class ResidualUnit(nn.Module):
    # Adds a residual of two convolutions to its input.

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        # The unit registers this module twice: `named_modules` has to give it once.
        self.activation = nn.ReLU(inplace=True)
        self.residual = nn.Sequential(
            normed_conv(channels, width, 3, stride), self.activation, normed_conv(width, width, 3)
        )
        self.projection: Optional[nn.Module] = None
        if (channels, 1) != (width, stride):
            self.projection = normed_conv(channels, width, 1, stride)

    def forward(self, picture: Tensor) -> Tensor:
        total = self.residual(picture)
        total += picture if self.projection is None else self.projection(picture)
        return self.activation(total)


def residual_units(channels: int, width: int, depth: int) -> Iterator[ResidualUnit]:
    # The first unit halves the picture when the number of channels grows.
    yield ResidualUnit(channels, width, stride=1 if channels == width else 2)
    for _ in range(depth - 1):
        yield ResidualUnit(width, width)


class ResidualClassifier(nn.Module):
    def __init__(self, depths: Sequence[int], classes: int, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            normed_conv(3, width, 7, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        self.stages = nn.Sequential()
        channels = width
        for stage, depth in enumerate(depths):
            self.stages.add_module(f"stage_{stage}", nn.Sequential(*residual_units(channels, width << stage, depth)))
            channels = width << stage
        self.pooling = nn.AdaptiveAvgPool2d((1, 1))
        self.output = nn.Linear(channels, classes)
        self.initialize()

    def initialize(self) -> None:
        for part in self.modules():
            if isinstance(part, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(part.weight, 1)
                nn.init.constant_(part.bias, 0)
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, pictures: Tensor) -> Tensor:
        means = self.pooling(self.stages(self.stem(pictures)))
        return self.output(torch.flatten(means, start_dim=1))


def build():
    # 18 layers on the longest path: the stem, 4 stages of 2 units of 2 convolutions, and the output.
    return ResidualClassifier((2, 2, 2, 2), classes=100)


def inputs(generator):
    return (generator.standard_normal((2, 3, 64, 64)).astype("float32"),)
"""

GPT2: Final = """
import math
from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass(frozen=True)
class DecoderSizes:
    tokens: int = 211
    window: int = 64
    width: int = 64
    heads: int = 4
    depth: int = 3
    dropout_rate: float = 0.0

    def __post_init__(self):
        if self.width % self.heads:
            raise ValueError(f"a width of {self.width} has no {self.heads} equal parts")


class MaskedAttention(nn.Module):
    # Attention of several heads, which gives hidden places no weight.

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.entrance = nn.Linear(sizes.width, 3 * sizes.width)
        self.exit = nn.Linear(sizes.width, sizes.width)
        self.dropout = nn.Dropout(sizes.dropout_rate)

    def by_head(self, rows):
        return rows.view(*rows.shape[:2], self.sizes.heads, -1).transpose(1, 2)

    def forward(self, signal, hidden):
        queries, keys, values = map(self.by_head, self.entrance(signal).split(self.sizes.width, dim=2))
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(keys.size(-1))
        weights = F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        answers = self.dropout(weights) @ values
        return self.exit(answers.transpose(1, 2).contiguous().view(signal.size()))


class NormalizedResidual(nn.Module):
    # Adds the result of a branch, which reads the normalized signal.

    def __init__(self, sizes, branch):
        super().__init__()
        self.norm = nn.LayerNorm(sizes.width)
        self.branch = branch
        self.dropout = nn.Dropout(sizes.dropout_rate)

    def forward(self, signal, *others):
        return signal + self.dropout(self.branch(self.norm(signal), *others))


def feed_forward(sizes):
    return nn.Sequential(
        OrderedDict(
            entrance=nn.Linear(sizes.width, 4 * sizes.width),
            activation=nn.GELU(approximate="tanh"),
            exit=nn.Linear(4 * sizes.width, sizes.width),
        )
    )


def initialize(part):
    if isinstance(part, (nn.Embedding, nn.Linear)):
        torch.nn.init.normal_(part.weight, mean=0.0, std=0.02)
    if getattr(part, "bias", None) is not None:
        torch.nn.init.zeros_(part.bias)


class Decoder(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.embeddings = nn.ModuleDict(
            {"token": nn.Embedding(sizes.tokens, sizes.width), "place": nn.Embedding(sizes.window, sizes.width)}
        )
        self.dropout = nn.Dropout(sizes.dropout_rate)
        self.attentions = nn.ModuleList([NormalizedResidual(sizes, MaskedAttention(sizes)) for _ in range(sizes.depth)])
        self.feed_forwards = nn.ModuleList([NormalizedResidual(sizes, feed_forward(sizes)) for _ in range(sizes.depth)])
        self.norm = nn.LayerNorm(sizes.width)
        self.scores = nn.Linear(sizes.width, sizes.tokens, bias=False)
        # Tied weights: one tensor embeds tokens and scores them.
        self.scores.weight = self.embeddings["token"].weight
        # Row i has ones at the places that place i attends to.
        self.register_buffer("visible", torch.tril(torch.ones(sizes.window, sizes.window)))
        self.apply(initialize)
        # Each branch adds to the signal: smaller weights keep the sum as large in deep models as in shallow ones.
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if name.endswith(".exit.weight"):
                    weight.div_(math.sqrt(2 * sizes.depth))

    def encode(self, tokens):
        length = tokens.size(1)
        if length > self.sizes.window:
            raise ValueError(f"{length} tokens, but the window holds {self.sizes.window}")
        places = torch.arange(0, length, dtype=torch.long, device=tokens.device)
        signal = self.dropout(self.embeddings["token"](tokens) + self.embeddings["place"](places))
        hidden = self.visible[:length, :length] == 0
        for attend, transform in zip(self.attentions, self.feed_forwards):
            signal = transform(attend(signal, hidden))
        return self.norm(signal)

    def forward(self, tokens, targets=None):
        scores = self.scores(self.encode(tokens))
        if targets is not None:
            return F.cross_entropy(scores.view(-1, self.sizes.tokens), targets.view(-1), ignore_index=-1)
        return scores

    @torch.no_grad()
    def generate(self, start, count, top_k=None):
        written = [start]
        while len(written) <= count:
            scores = self(torch.cat(written, dim=1)[:, -self.sizes.window :])[:, -1, :]
            if top_k is not None:
                kept = min(top_k, self.sizes.tokens)
                best, _ = torch.topk(scores, kept)
                scores[scores < best[:, [kept - 1]]] = float("-inf")
            written.append(F.softmax(scores, dim=-1).argmax(dim=-1, keepdim=True))
        return torch.cat(written, dim=1)


def build():
    return Decoder(DecoderSizes())


def inputs(generator):
    return (generator.integers(0, 211, (2, 33)),)
"""

SEQUENCE: Final = """
import torch
from torch import nn


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        output, (h, c) = self.lstm(x)
        return self.head(output[:, -1]).squeeze(-1)


def build():
    return Forecaster()


def inputs(generator):
    return (generator.standard_normal((3, 20, 1)).astype("float32"),)
"""

DIGITS: Final = """
from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
"""

# The training loop of all models: the same text for both libraries, under the name `torch`.
TRAINING: Final = """
import torch
from torch import nn
from torch.nn import functional as F


def train(model, loss_of, batches, lr, weight_decay=0.0, max_norm=None):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(batches))
    losses = []
    model.train()
    for batch in batches:
        loss = loss_of(model, *[torch.tensor(array) for array in batch])
        optimizer.zero_grad()
        loss.backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def classify(model, images, labels):
    return nn.CrossEntropyLoss(label_smoothing=0.05)(model(images), labels)


def next_token(model, tokens, targets):
    return model(tokens, targets)


def forecast(model, windows, targets):
    return F.mse_loss(model(windows), targets)
"""


def loaded(source: str, library: str) -> Any:
    """The module that `source` makes on torch, as written, or on vmflow, with the imports changed."""
    if library == "vmflow":
        source = source.replace("from torch", "from vmflow").replace("import torch.", "import vmflow.")
        source = source.replace("import torch\n", "import vmflow as torch\n")
    module = ModuleType(f"{library}_model")
    # Dataclasses look their module up.
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, f"<model on {library}>", "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module
