"""A DCGAN: two networks and two optimizers, `weights_init` by `apply`, detached fakes, and a loss of labels."""
# mypy: ignore-errors

import numpy as np
import torch
import torch.nn as nn
import torch.nn.parallel
import torch.optim as optim

nz, ngf, ndf, nc = 8, 8, 8, 1


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.main(input)


def build():
    netG, netD = Generator(), Discriminator()
    netG.apply(weights_init)
    netD.apply(weights_init)
    return netG, netD


def train(netG, netD):
    device = torch.device("cpu")
    netG, netD = netG.to(device), netD.to(device)
    rng = np.random.default_rng(3)

    def noise(count):
        return torch.from_numpy(rng.standard_normal((count, nz, 1, 1)).astype(np.float32)).to(device)

    criterion = nn.BCELoss()
    fixed_noise = noise(4)
    real_label = 1.0
    fake_label = 0.0
    optimizerD = optim.Adam(netD.parameters(), lr=0.0005, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=0.0005, betas=(0.5, 0.999))
    ramp = torch.linspace(-1, 1, 16, device=device)
    for i in range(10):
        # Maximize log(D(x)) + log(1 - D(G(z))).
        netD.zero_grad()
        real_cpu = (ramp[:, None] * ramp[None, :] * torch.arange(1, 9, device=device).view(-1, 1, 1, 1) / 8).tanh()
        b_size = real_cpu.size(0)
        label = torch.full((b_size,), real_label, dtype=torch.float, device=device)
        output = netD(real_cpu).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().item()
        fake = netG(noise(b_size))
        label.fill_(fake_label)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.mean().item()
        errD = errD_real + errD_fake
        optimizerD.step()
        # Maximize log(D(G(z))).
        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        errG.backward()
        D_G_z2 = output.mean().item()
        optimizerG.step()
        print(
            f"[{i}/10] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}"
            f" D(x): {D_x:.4f} D(G(z)): {D_G_z1:.4f} / {D_G_z2:.4f}"
        )
    with torch.no_grad():
        fake = netG(fixed_noise).detach().cpu()
    print(f"images {tuple(fake.shape)} mean {fake.mean():.4f} std {fake.std():.4f}")


if __name__ == "__main__":
    torch.manual_seed(999)
    train(*build())
