"""A vision transformer with a class token, warmup by LambdaLR, label smoothing and an average of the weights."""
# mypy: ignore-errors

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(dropout))

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        qkv = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (t.reshape(b, n, self.heads, d // self.heads).transpose(1, 2) for t in qkv)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, hidden_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, dim),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class ViT(nn.Module):
    def __init__(self, image_size=16, patch_size=4, num_classes=4, dim=32, depth=2, heads=4, mlp_dim=64, channels=3):
        super().__init__()
        assert image_size % patch_size == 0, "image dimensions must be divisible by the patch size"
        num_patches = (image_size // patch_size) ** 2
        self.to_patch = nn.Conv2d(channels, dim, kernel_size=patch_size, stride=patch_size)
        self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim) * 0.02)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        nn.init.trunc_normal_(self.pos_embedding, std=0.02)
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(nn.ModuleList([Attention(dim, heads), FeedForward(dim, mlp_dim)]))
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(dim, heads, mlp_dim, dropout=0.0, batch_first=True, norm_first=True),
            num_layers=1,
            enable_nested_tensor=False,
        )
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.mlp_head = nn.Linear(dim, num_classes)

    def forward(self, img: Tensor) -> Tensor:
        x = self.to_patch(img).flatten(2).transpose(1, 2)
        cls_tokens = self.cls_token.expand(img.shape[0], -1, -1)
        x = torch.cat((cls_tokens, x), dim=1) + self.pos_embedding
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        x = self.norm(self.encoder(x))
        return self.mlp_head(x[:, 0])


class EMA:
    """A moving average of a model's weights."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for mine, theirs in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs.detach(), 1 - self.decay)


def gratings(count: int) -> tuple[Tensor, Tensor]:
    labels = torch.arange(count) % 4
    ys, xs = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
    angle = labels * (math.pi / 4)
    phase = torch.arange(count)[:, None, None, None] * torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    wave = torch.cos(angle)[:, None, None] * xs + torch.sin(angle)[:, None, None] * ys
    return torch.sin(6 * wave.unsqueeze(1) + phase), labels


def build() -> nn.Module:
    return ViT()


def train(model: nn.Module) -> None:
    images, labels = gratings(64)
    mean, std = images.mean(dim=(0, 2, 3), keepdim=True), images.std(dim=(0, 2, 3), keepdim=True)
    images = (images - mean) / std
    decay = [p for n, p in model.named_parameters() if p.dim() > 1]
    no_decay = [p for n, p in model.named_parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}],
        lr=2e-3,
        betas=(0.9, 0.999),
    )
    warmup, total = 3, 16

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=rate)
    ema = EMA(model, decay=0.9)
    model.train()
    for step in range(total):
        batch = torch.arange(step * 16, step * 16 + 16) % 64
        logits = model(images[batch])
        loss = F.cross_entropy(logits, labels[batch], label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        scheduler.step()
        ema.update(model)
        print(f"step {step} lr {scheduler.get_last_lr()[0]:.6f} norm {norm.item():.3f} loss {loss.item():.5f}")
    model.eval()
    with torch.inference_mode():
        probabilities = model(images).softmax(dim=-1)
        top = probabilities.topk(2, dim=-1)
        accuracy = (top.indices[:, 0] == labels).float().mean().item()
        averaged = F.cross_entropy(ema.model(images), labels)
    print(f"accuracy {accuracy:.3f} confidence {top.values.sum(dim=-1).mean():.4f} averaged {averaged:.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    train(build())
