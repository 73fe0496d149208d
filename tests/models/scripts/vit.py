"""A vision transformer: class token, learned positions, warm-up before a cosine, smoothed labels, averaged weights."""
# mypy: ignore-errors

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

SIZE, PATCH, WIDTH, HEADS, CLASSES = 15, 5, 24, 3, 5


class PatchTokens(nn.Module):
    """Patches of an image as tokens behind a class token, with learned positions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, WIDTH, PATCH, stride=PATCH)
        self.class_token = nn.Parameter(torch.zeros(WIDTH))
        self.position = nn.Parameter(torch.empty(1 + (SIZE // PATCH) ** 2, WIDTH))
        nn.init.trunc_normal_(self.position, std=0.03)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.embed(images).flatten(start_dim=2).mT
        class_tokens = self.class_token.expand(len(patches), 1, WIDTH)
        return torch.cat([class_tokens, patches], dim=1) + self.position


class SelfAttention(nn.Module):
    """Multi-head attention whose keys and values come from one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key_value = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        queries = self.query(tokens).unflatten(-1, (HEADS, -1)).permute(0, 2, 1, 3)
        keys, values = self.key_value(tokens).unflatten(-1, (2, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(queries, keys, values)
        return self.output(attended.permute(0, 2, 1, 3).flatten(-2))


class Residual(nn.Module):
    """A residual connection around a module whose input is normalised."""

    def __init__(self, inner: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = inner
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens + self.dropout(self.inner(self.norm(tokens)))


class PatchClassifier(nn.Module):
    def __init__(self, channels: int = 3, depth: int = 2) -> None:
        super().__init__()
        self.tokens = PatchTokens(channels)
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers.append(Residual(SelfAttention()))
            layers.append(Residual(nn.Sequential(nn.Linear(WIDTH, 3 * WIDTH), nn.GELU(), nn.Linear(3 * WIDTH, WIDTH))))
        self.layers = nn.Sequential(*layers)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, dim_feedforward=40, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.last = nn.TransformerEncoder(layer, 1, norm=nn.LayerNorm(WIDTH, eps=1e-6), enable_nested_tensor=False)
        self.classifier = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.last(self.layers(self.tokens(images)))
        return self.classifier(tokens.select(1, 0))


def patterns(count: int) -> tuple[Tensor, Tensor]:
    """Ripples, spots, stripes both ways, and a chequered pattern, in three channels each."""
    line = torch.linspace(-1, 1, SIZE)
    down, across = line[:, None], line[None, :]
    images = []
    for number in range(count):
        shift = 0.35 * number
        planes = [
            torch.sin(9 * torch.hypot(down, across) + shift),
            torch.exp(-6 * ((down - 0.5 * math.sin(shift)) ** 2 + (across - 0.5 * math.cos(shift)) ** 2)),
            torch.sin(8 * down + shift).expand(SIZE, SIZE),
            torch.sin(8 * across + shift).expand(SIZE, SIZE),
            torch.sin(8 * down + shift) * torch.sin(8 * across - shift),
        ]
        images.append(torch.stack([planes[number % CLASSES] * factor for factor in (1.0, -0.5, 0.2 + 0.01 * number)]))
    return torch.stack(images), torch.arange(count).remainder(CLASSES)


class AveragedWeights:
    """An exponential moving average of a model's parameters."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.weights = {key: value.detach().clone() for key, value in model.named_parameters()}

    def update(self) -> None:
        with torch.no_grad():
            for key, value in self.model.named_parameters():
                self.weights[key].lerp_(value, 1.0 - self.decay)

    def __call__(self, images: Tensor) -> Tensor:
        return functional_call(self.model, self.weights, (images,))


def build() -> nn.Module:
    return PatchClassifier()


def train(model: nn.Module) -> None:
    images, labels = patterns(60)
    spread, centre = torch.std_mean(images, dim=(0, 2, 3), keepdim=True)
    images = images.sub(centre).div_(spread)

    undecayed = {id(value) for value in model.parameters() if value.ndim < 2}
    optimizer = torch.optim.AdamW(
        [
            {"params": [value for value in model.parameters() if id(value) in undecayed], "weight_decay": 0.0},
            {"params": [value for value in model.parameters() if id(value) not in undecayed]},
        ],
        lr=4e-3,
        betas=(0.9, 0.98),
        weight_decay=0.08,
    )
    warmup, decline = 4, 14
    scheduler = SequentialLR(
        optimizer,
        [
            LinearLR(optimizer, start_factor=0.25, total_iters=warmup),
            CosineAnnealingLR(optimizer, T_max=decline, eta_min=1e-4),
        ],
        milestones=[warmup],
    )
    average = AveragedWeights(model, decay=0.8)
    order = torch.arange(60).view(4, 15).t().reshape(-1)
    model.train()
    for step in range(warmup + decline):
        rows = order.roll(-20 * step)[:20]
        loss = F.cross_entropy(model(images[rows]), labels[rows], label_smoothing=0.08)
        model.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.5, foreach=True)
        rate = scheduler.get_last_lr()
        optimizer.step()
        scheduler.step()
        average.update()
        print(f"step {step:2d}: loss {loss:.4f}, gradient norm {norm:.3f}, rate {rate[0]:.5f}")
    model.eval()
    with torch.inference_mode():
        probabilities, predicted = F.softmax(model(images), dim=1).topk(2)
        correct = (predicted == labels[:, None]).sum(dim=0)
        print(f"{correct[0].item()} of {len(labels)} correct, confidence {probabilities[:, 0].mean():.3f}")
        print(f"{correct.sum().item()} among the first two")
        print(f"averaged weights: loss {F.cross_entropy(average(images), labels):.4f}")


if __name__ == "__main__":
    torch.manual_seed(8)
    train(build())
