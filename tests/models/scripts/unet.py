"""A U-Net that segments rings and bars, trained in bfloat16 under autocast with a gradient scaler."""
# mypy: ignore-errors

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CHANNELS = (8, 12, 20)
CLASSES = ("ground", "ring", "bar")
SIZE = 22


class ConvStage(nn.Module):
    """Two convolutions, the second with a residual connection."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.first = nn.Conv2d(in_channels, out_channels, 3, padding="same", bias=False)
        self.first_norm = nn.BatchNorm2d(out_channels, momentum=0.2)
        self.second = nn.Conv2d(out_channels, out_channels, 3, padding="same", padding_mode="replicate")
        self.second_norm = nn.GroupNorm(2, out_channels)

    def forward(self, maps):
        maps = F.silu(self.first_norm(self.first(maps)), inplace=True)
        return F.relu(maps + self.second_norm(self.second(maps)))


class UpStage(nn.Module):
    """Upsamples the deep maps, and joins them with those of the skip connection."""

    def __init__(self, deep, shallow, learned):
        super().__init__()
        if learned:
            self.upsample = nn.ConvTranspose2d(deep, shallow, 2, stride=2)
        else:
            self.upsample = nn.Sequential(
                nn.Conv2d(deep, shallow, 1), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            )
        self.stage = ConvStage(2 * shallow, shallow)

    def forward(self, deep, skip):
        upsampled = self.upsample(deep)
        # Halving an odd size loses a row and a column.
        missing = [full - part for full, part in zip(skip.shape[-2:], upsampled.shape[-2:], strict=True)]
        upsampled = F.pad(upsampled, (0, missing[1], 0, missing[0]))
        return self.stage(torch.cat((upsampled, skip), dim=1))


class SegmentationUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvStage(1, CHANNELS[0])
        self.pool = nn.MaxPool2d(kernel_size=2)
        self.encoder = nn.ModuleList(ConvStage(upper, lower) for upper, lower in pairwise(CHANNELS))
        self.decoder = nn.ModuleDict()
        for number, (upper, lower) in enumerate(pairwise(CHANNELS)):
            self.decoder[f"to_{upper}"] = UpStage(lower, upper, learned=number % 2 == 0)
        self.head = nn.Conv2d(CHANNELS[0], len(CLASSES), 1)

    def forward(self, images):
        maps, skips = self.stem(images), []
        for stage in self.encoder:
            skips.append(maps)
            maps = stage(self.pool(maps))
        for stage, skip in zip(reversed(list(self.decoder.values())), reversed(skips), strict=True):
            maps = stage(maps, skip)
        return self.head(maps)


def ring_images(count):
    """Images with a ring and a bar each, and the class of every pixel."""
    line = torch.arange(SIZE)
    down, across = torch.meshgrid(line, line, indexing="ij")
    number = torch.arange(count)[:, None, None]
    radius = torch.hypot((down - 6 - number % 10).float(), (across - 7 - number % 6).float())
    classes = torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    classes[(radius > 2.5) & (radius < 5)] = 1
    classes[((across - (3 * number) % 17).abs() < 2).expand_as(classes)] = 2
    images = torch.tensor([0.1, 0.9, -0.7])[classes] + 0.15 * torch.cos(2 * down + across * number)
    return images[:, None], classes


def overlap_loss(logits, classes):
    """One minus the intersection over union of probabilities."""
    probabilities = logits.float().softmax(dim=1)
    targets = F.one_hot(classes, len(CLASSES)).movedim(-1, 1).to(probabilities)
    intersection = torch.einsum("nkhw,nkhw->k", probabilities, targets)
    union = probabilities.sum(dim=(0, 2, 3)) + targets.sum(dim=(0, 2, 3)) - intersection
    return (1 - (intersection + 1) / (union + 1)).mean()


def build():
    return SegmentationUNet()


def train(model, device="cpu"):
    model.to(device)
    pixel_loss = nn.CrossEntropyLoss(weight=torch.tensor([0.6, 1.2, 1.2], device=device))
    batches = DataLoader(TensorDataset(*ring_images(16)), batch_size=8, drop_last=True)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1.5e-3, momentum=0.7, weight_decay=1e-6, foreach=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=3)
    scaler = torch.amp.GradScaler(device, init_scale=256.0, growth_interval=4)
    for epoch in range(4):
        model.train()
        losses = []
        for images, classes in batches:
            images, classes = images.to(device), classes.to(device=device, non_blocking=True)
            with torch.autocast(device_type=device, dtype=torch.bfloat16):
                logits = model(images)
                loss = pixel_loss(logits, classes) + overlap_loss(logits, classes)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=2.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        model.eval()
        with torch.inference_mode(), torch.autocast(device_type=device, dtype=torch.bfloat16):
            accuracy = torch.stack([(model(images).argmax(1) == classes).float().mean() for images, classes in batches])
        scheduler.step(accuracy.mean().item())
        print(f"epoch {epoch}: mean loss {torch.stack(losses).mean().item():.4f}")
    dtypes = [str(value.dtype).rpartition(".")[2] for value in (logits, loss, model.head.weight)]
    print(f"logits, loss and weights are {', '.join(dtypes)}; scale {scaler.get_scale()}")
    print(f"{sum(weight.numel() for weight in model.parameters())} parameters, logits {tuple(logits.shape)}")


if __name__ == "__main__":
    torch.manual_seed(41)
    train(build())
