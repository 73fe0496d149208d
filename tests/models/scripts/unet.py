"""A small U-Net that segments discs, trained under autocast with a gradient scaler and a schedule."""
# mypy: ignore-errors

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
            nn.GroupNorm(4, out_channels),
            nn.SiLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.block(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
                nn.Conv2d(in_channels, in_channels // 2, 1),
            )
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x, skip):
        x = self.up(x)
        dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
        x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels=1, n_classes=2, width=8):
        super().__init__()
        self.inc = DoubleConv(n_channels, width)
        self.downs = nn.ModuleList(
            [nn.Sequential(nn.MaxPool2d(2), DoubleConv(width * 2**i, width * 2 ** (i + 1))) for i in range(2)]
        )
        self.ups = nn.ModuleList([Up(width * 4, width * 2, bilinear=True), Up(width * 2, width, bilinear=False)])
        self.outc = nn.Conv2d(width, n_classes, kernel_size=1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.outc(x)


def discs(count, size):
    """Images of discs, and the masks of their pixels."""
    ys, xs = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    k = torch.arange(count).view(-1, 1, 1)
    distance = ((ys - 4 - k % 9) ** 2 + (xs - 5 - k % 7) ** 2).float().sqrt()
    masks = (distance < 3 + k % 4).long()
    images = masks.float() + 0.2 * torch.sin(distance * 3 + k)
    return images.unsqueeze(1), masks


def dice_loss(logits, target, eps=1e-6):
    probabilities = F.softmax(logits.float(), dim=1)
    one_hot = F.one_hot(target, logits.shape[1]).permute(0, 3, 1, 2).float()
    inter = 2 * (probabilities * one_hot).sum(dim=(-1, -2))
    union = probabilities.sum(dim=(-1, -2)) + one_hot.sum(dim=(-1, -2))
    return 1 - ((inter + eps) / (union + eps)).mean()


def build():
    return UNet()


def train(model, device="cpu", amp=True):
    model = model.to(device=device)
    loader = DataLoader(TensorDataset(*discs(16, 18)), batch_size=8, shuffle=False, drop_last=True)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9, foreach=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=1)
    grad_scaler = torch.amp.GradScaler(device, enabled=amp)
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.5], device=device))
    for epoch in range(4):
        model.train()
        epoch_loss = 0.0
        for images, true_masks in loader:
            assert images.shape[1] == 1
            images = images.to(device=device, dtype=torch.float32)
            true_masks = true_masks.to(device=device, dtype=torch.long)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=amp):
                masks_pred = model(images)
                loss = criterion(masks_pred, true_masks)
                loss = loss + dice_loss(masks_pred, true_masks)
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            grad_scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            epoch_loss += loss.item()
        model.eval()
        with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16, enabled=amp):
            images, masks = next(iter(loader))
            predicted = model(images).argmax(dim=1)
            accuracy = (predicted == masks).float().mean().item()
        scheduler.step(accuracy)
        print(f"epoch {epoch} loss {epoch_loss / len(loader):.5f}")
    print(f"output {masks_pred.dtype} loss {loss.dtype}".replace("torch.", "").replace("vmflow.", ""))
    print(f"parameters {sum(p.numel() for p in model.parameters() if p.requires_grad)}")


if __name__ == "__main__":
    torch.manual_seed(0)
    train(build())
