"""A variational autoencoder of small images, with Adam, a checkpoint of its state and samples from the prior."""
# mypy: ignore-errors

import io

import numpy as np
import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self, pixels=64, hidden=48, latent=6):
        super().__init__()
        self.pixels = pixels
        self.fc1 = nn.Linear(pixels, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, pixels)
        self.rng = np.random.default_rng(5)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        if not self.training:
            return mu
        std = torch.exp(0.5 * logvar)
        eps = torch.from_numpy(self.rng.standard_normal(std.shape)).to(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, self.pixels))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


class Stripes(torch.utils.data.Dataset):
    """Images of 8 by 8 pixels, with stripes of several widths and phases."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        columns = torch.arange(8, dtype=torch.float32)
        row = 0.5 + 0.5 * torch.sin(columns * (0.4 + 0.3 * (index % 5)) + index)
        return row.expand(1, 8, 8), index % 5


def build():
    return VAE()


def train(model):
    device = next(model.parameters()).device
    loader = torch.utils.data.DataLoader(Stripes(), batch_size=16, shuffle=False)
    optimizer = optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    for epoch in range(1, 4):
        model.train()
        train_loss = 0
        for batch_idx, (data, _) in enumerate(loader):
            data = data.to(device, non_blocking=True)
            optimizer.zero_grad()
            recon_batch, mu, logvar = model(data)
            loss = loss_function(recon_batch, data, mu, logvar)
            loss.backward()
            train_loss += loss.item()
            optimizer.step()
            if batch_idx % 2 == 0:
                print(
                    f"epoch {epoch} [{batch_idx * len(data)}/{len(loader.dataset)}] loss {loss.item() / len(data):.5f}"
                )
        print(f"epoch {epoch} average {train_loss / len(loader.dataset):.5f}")

    model.eval()
    with torch.no_grad():
        data, labels = next(iter(loader))
        recon, mu, logvar = model(data)
        divergence = torch.distributions.kl_divergence(
            torch.distributions.Normal(mu, (0.5 * logvar).exp()),
            torch.distributions.Normal(torch.zeros_like(mu), torch.ones_like(mu)),
        ).sum(-1)
        print(f"labels {labels.tolist()} divergence {divergence.mean():.4f}")
        comparison = torch.cat([data[:4], recon.view(16, 1, 8, 8)[:4]])
        print(f"comparison {tuple(comparison.shape)} mean {comparison.mean().item():.5f}")
        sample = model.decode(torch.randn(10, 6).to(device)).cpu()
        print(f"samples {tuple(sample.size())} within {bool(((sample >= 0) & (sample <= 1)).all())}")

    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, buffer)
    buffer.seek(0)
    checkpoint = torch.load(buffer, weights_only=True)
    again = build()
    again.load_state_dict(checkpoint["model"])
    again.eval()
    print(f"epoch {checkpoint['epoch']} same {torch.equal(again(data)[0], recon)}")


if __name__ == "__main__":
    torch.manual_seed(0)
    train(build())
