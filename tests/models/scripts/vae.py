"""A variational autoencoder of small height profiles: reparametrised samples, a KL term, a checkpoint."""
# mypy: ignore-errors

import io
import math

import numpy as np
import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence
from torch.nn.functional import binary_cross_entropy, softplus
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

ROWS, COLUMNS, LATENT = 6, 10, 5


class Profiles(Dataset):
    """Images of a skyline: a column is filled up to its height, with a soft upper edge."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        if not 0 <= number < self.count:
            raise IndexError(number)
        family = number % 3
        where = torch.linspace(0, math.tau, COLUMNS)
        height = 3 + 2 * torch.cos((family + 1) * where / 2 + 0.4 * number)
        level = torch.arange(ROWS, dtype=torch.float32).unsqueeze(1)
        return torch.sigmoid(3 * (height - level)), family


class ProfileVAE(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(ROWS * COLUMNS, width), nn.Tanh())
        self.posterior_head = nn.Linear(width, 2 * LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, width),
            nn.LeakyReLU(0.1),
            nn.Linear(width, ROWS * COLUMNS),
            nn.Unflatten(1, (ROWS, COLUMNS)),
            nn.Sigmoid(),
        )
        self.generator = np.random.default_rng(77)

    def posterior(self, images):
        mean, scale = self.posterior_head(self.encoder(images)).tensor_split(2, dim=-1)
        return mean, softplus(scale) + 1e-3

    def sample(self, mean, scale):
        """A sample of the posterior that lets gradients through to its mean and scale."""
        noise = torch.from_numpy(self.generator.normal(size=tuple(mean.shape))).to(scale)
        return torch.addcmul(mean, scale, noise)

    def forward(self, images):
        mean, scale = self.posterior(images)
        latent = self.sample(mean, scale) if self.training else mean
        return self.decoder(latent), mean, scale


def standard_kl(mean, scale):
    """The KL divergence of a diagonal Gaussian from the standard one, for each image."""
    return ((mean**2 + scale.square() - 1) / 2 - scale.log()).sum(dim=1)


def build():
    return ProfileVAE()


def train(model):
    device = next(iter(model.parameters())).device
    batches = DataLoader(Profiles(54), batch_size=18)
    optimizer = Adam(model.parameters(), lr=8e-3, betas=(0.85, 0.99), amsgrad=True)
    scheduler = LambdaLR(optimizer, lambda epoch: 0.75**epoch)
    for epoch in range(4):
        model.train()
        # A small KL term at first keeps the posterior from collapsing.
        kl_weight = min(1.0, 0.1 + 0.3 * epoch)
        errors, kls = torch.zeros(2, device=device)
        for images, _ in batches:
            images = images.to(device, non_blocking=True)
            reconstructed, mean, scale = model(images)
            error = binary_cross_entropy(reconstructed, images, reduction="none").sum(dim=(1, 2)).mean()
            kl = standard_kl(mean, scale).mean()
            optimizer.zero_grad()
            (error + kl_weight * kl).backward()
            optimizer.step()
            errors = errors + error.detach()
            kls = kls + kl.detach()
        scheduler.step()
        print(f"epoch {epoch}: reconstruction {errors / len(batches):.4f}, KL {kls / len(batches):.4f}")

    model.eval()
    images, families = next(iter(batches))
    with torch.no_grad():
        reconstructed, mean, scale = model(images)
        exact = kl_divergence(
            Independent(Normal(mean, scale), 1),
            Independent(Normal(torch.zeros_like(mean), torch.ones_like(scale)), 1),
        )
        print(f"KL as by distributions: {torch.allclose(exact, standard_kl(mean, scale), rtol=1e-4, atol=1e-5)}")
        for family in range(3):
            difference = (reconstructed - images)[families == family].abs()
            print(f"family {family}: {(families == family).sum().item()} images, mean error {difference.mean():.4f}")
        sampled = model.decoder(torch.randn(7, LATENT, device=device)).cpu()
        print(f"sampled {list(sampled.size())}, between 0 and 1: {bool(((sampled >= 0) & (sampled <= 1)).all())}")

    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs": epoch + 1}, buffer)
    buffer.seek(0)
    checkpoint = torch.load(buffer, weights_only=True)
    restored = build().eval()
    print(f"restored after {checkpoint['epochs']} epochs: {restored.load_state_dict(checkpoint['model'])}")
    resumed = Adam(restored.parameters(), lr=1.0)
    resumed.load_state_dict(checkpoint["optimizer"])
    same = torch.equal(restored(images)[0], reconstructed)
    print(f"same reconstruction: {same}, rate {resumed.param_groups[0]['lr']:.6f}")


if __name__ == "__main__":
    torch.manual_seed(23)
    train(build())
