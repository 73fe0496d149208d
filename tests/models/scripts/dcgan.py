"""A DCGAN of small crosses: two networks with an optimizer each, weights set by `apply`, detached samples."""
# mypy: ignore-errors

import copy
from functools import partial

import numpy as np
import torch
from torch import nn

LATENT, SIZE = 6, 12


def reset(layer, spread):
    """New weights for convolutions and for normalisation."""
    if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
        layer.weight.data.normal_(0, spread)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    elif isinstance(layer, nn.BatchNorm2d):
        nn.init.normal_(layer.weight, mean=1, std=spread)
        layer.bias.data.fill_(0)


class CrossGenerator(nn.Module):
    """Upsamples latent vectors to 3 by 3, 6 by 6 and 12 by 12 pixels."""

    def __init__(self, widths=(14, 10)):
        super().__init__()
        self.to_3 = nn.ConvTranspose2d(LATENT, widths[0], 3, bias=False)
        self.to_6 = nn.ConvTranspose2d(widths[0], widths[1], 3, stride=2, padding=1, output_padding=1, bias=False)
        self.to_12 = nn.ConvTranspose2d(widths[1], 1, 6, stride=2, padding=2)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths)

    def forward(self, latent):
        small = self.norms[0](self.to_3(latent[:, :, None, None])).relu_()
        middle = self.norms[1](self.to_6(small)).relu_()
        return self.to_12(middle).tanh()


class CrossDiscriminator(nn.Module):
    """The probability that an image is a real one."""

    def __init__(self, width=9):
        super().__init__()
        activation = nn.LeakyReLU(0.15, inplace=True)
        self.features = nn.Sequential()
        self.features.append(nn.Conv2d(1, width, 6, stride=2, padding=2)).append(activation)
        self.features.append(nn.Conv2d(width, 2 * width, 4, stride=2, padding=1, bias=False))
        self.features.append(nn.BatchNorm2d(2 * width)).append(activation)
        self.score = nn.Conv2d(2 * width, 1, 3)

    def forward(self, images):
        return self.score(self.features(images)).sigmoid().flatten()


def crosses(number, count=12):
    """White crosses on black whose centres move about."""
    line = torch.linspace(-1, 1, SIZE)
    centre = 0.5 * torch.sin(torch.arange(count) + 0.7 * number).view(-1, 1, 1)
    bars = torch.maximum(-(line[:, None] - centre).abs(), -(line[None, :] + centre).abs())
    return torch.clamp(1 + 6 * (bars + 0.2), -1, 1)[:, None]


def build():
    generator, discriminator = CrossGenerator(), CrossDiscriminator()
    for module in (generator, discriminator):
        module.apply(partial(reset, spread=0.05))
    return generator, discriminator


def train(generator, discriminator):
    device = torch.device("cpu")
    random = np.random.default_rng(314)
    loss_of = nn.BCELoss()
    optimizers = {
        module: torch.optim.Adam(module.to(device).parameters(), lr=rate, betas=(0.4, 0.99))
        for module, rate in ((generator, 2e-3), (discriminator, 6e-4))
    }

    def latents(count):
        return torch.as_tensor(random.uniform(-1.5, 1.5, (count, LATENT)), dtype=torch.float32, device=device)

    averaged = copy.deepcopy(generator).requires_grad_(False).eval()
    shown = latents(5)
    for step in range(12):
        images = crosses(step).to(device)
        samples = generator(latents(len(images)))

        # The discriminator learns from both; the labels of real images are smoothed.
        discriminator.requires_grad_(True)
        on_images, on_samples = discriminator(images), discriminator(samples.detach())
        discriminator_loss = loss_of(on_images, torch.full_like(on_images, 0.9))
        discriminator_loss = discriminator_loss + loss_of(on_samples, torch.zeros_like(on_samples))
        optimizers[discriminator].zero_grad()
        discriminator_loss.backward()
        optimizers[discriminator].step()

        # The generator learns while the discriminator is frozen.
        discriminator.requires_grad_(False)
        after = discriminator(samples)
        generator_loss = loss_of(after, after.new_ones(()).expand_as(after))
        optimizers[generator].zero_grad()
        generator_loss.backward()
        optimizers[generator].step()
        with torch.no_grad():
            for mean, value in zip(averaged.state_dict().values(), generator.state_dict().values(), strict=True):
                # Batch normalisation counts batches in whole numbers.
                mean.lerp_(value, 0.3) if mean.is_floating_point() else mean.copy_(value)

        means = [found.detach().mean().item() for found in (on_images, on_samples, after)]
        print(f"step {step:2d}: losses {discriminator_loss.item():.4f} and {generator_loss.item():.4f}, ", end="")
        print("probabilities " + ", ".join(f"{mean:.3f}" for mean in means))
    frozen = all(weight.grad is not None and not weight.requires_grad for weight in discriminator.parameters())
    generator.eval()
    with torch.no_grad():
        samples, smoother = generator(shown), averaged(shown)
    print(f"frozen: {frozen}, samples {tuple(samples.shape)}")
    print(f"mean {samples.mean():.4f}, deviation {samples.std():.4f}, maximum {samples.amax().item():.4f}")
    print(f"averaged: mean {smoother.mean():.4f}, deviation {smoother.std():.4f}")


if __name__ == "__main__":
    torch.manual_seed(5)
    train(*build())
