"""Graph networks that pass messages by `index_add_` and `scatter_reduce`, with attention over edges, on two clubs."""
# mypy: ignore-errors

import torch
from torch import Tensor, nn
from torch.nn import Parameter, functional as F


def add_self_loops(edge_index: Tensor, num_nodes: int) -> Tensor:
    loops = torch.arange(num_nodes, dtype=torch.long, device=edge_index.device)
    return torch.cat([edge_index, loops.unsqueeze(0).repeat(2, 1)], dim=1)


def degree(index: Tensor, num_nodes: int, dtype: torch.dtype | None = None) -> Tensor:
    out = torch.zeros((num_nodes,), dtype=dtype, device=index.device)
    one = torch.ones((index.size(0),), dtype=out.dtype, device=out.device)
    return out.scatter_add_(0, index, one)


class GCNConv(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()
        self.bias.data.zero_()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index = add_self_loops(edge_index, x.size(0))
        x = self.lin(x)
        row, col = edge_index
        deg_inv_sqrt = degree(col, x.size(0), dtype=x.dtype).pow(-0.5)
        deg_inv_sqrt[deg_inv_sqrt == float("inf")] = 0
        norm = deg_inv_sqrt[row] * deg_inv_sqrt[col]
        out = torch.zeros_like(x).index_add(0, col, norm.view(-1, 1) * x[row])
        return out + self.bias


class GATConv(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.out_channels = heads, out_channels
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = Parameter(torch.empty(1, heads, out_channels))
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index = add_self_loops(edge_index, x.size(0))
        src, dst = edge_index[0], edge_index[1]
        x = self.lin(x).view(-1, self.heads, self.out_channels)
        alpha = (x * self.att_src).sum(-1)[src] + (x * self.att_dst).sum(-1)[dst]
        alpha = F.leaky_relu(alpha, 0.2)
        # Softmax over the edges that arrive at each node.
        index = dst.unsqueeze(-1).expand_as(alpha)
        highest = torch.full((x.size(0), self.heads), float("-inf")).scatter_reduce(
            0, index, alpha.detach(), reduce="amax", include_self=True
        )
        alpha = (alpha - highest.gather(0, index)).exp()
        total = torch.zeros(x.size(0), self.heads).index_add_(0, dst, alpha)
        alpha = alpha / (total.index_select(0, dst) + 1e-16)
        out = torch.zeros_like(x)
        out.index_add_(0, dst, x[src] * alpha.unsqueeze(-1))
        return out.flatten(1)


class Net(nn.Module):
    def __init__(self, in_channels: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden)
        self.conv2 = GATConv(hidden, hidden // 2)
        self.norm = nn.BatchNorm1d(hidden)
        self.conv3 = GCNConv(hidden, classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.0, training=self.training)
        x = F.elu(self.norm(self.conv2(x, edge_index)))
        return F.log_softmax(self.conv3(x, edge_index), dim=1)


def clubs(size: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Two clubs of friends, with a few bridges: features, edges in both directions, and the club of each node."""
    edges = []
    for club in range(2):
        base = club * size
        edges += [(base + i, base + (i * k + 1) % size) for i in range(size) for k in (1, 3) if i != (i * k + 1) % size]
    edges += [(0, size), (3, size + 5)]
    edge_index = torch.tensor(edges, dtype=torch.long).t().contiguous()
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    edge_index = torch.unique(edge_index, dim=1)
    y = torch.arange(2 * size).div(size, rounding_mode="floor")
    return torch.eye(2 * size), edge_index, y


def build() -> nn.Module:
    return Net(24, 16, 2)


def train(model: nn.Module) -> None:
    x, edge_index, y = clubs()
    mask = torch.zeros(x.size(0), dtype=torch.bool)
    mask[torch.tensor([0, 3, 12, 20])] = True
    optimizer = torch.optim.Adam(
        [
            dict(params=model.conv1.parameters(), weight_decay=5e-4),
            dict(params=[*model.conv2.parameters(), *model.norm.parameters(), *model.conv3.parameters()]),
        ],
        lr=0.02,
    )
    for epoch in range(20):
        model.train()
        optimizer.zero_grad()
        out = model(x, edge_index)
        loss = F.nll_loss(out[mask], y[mask])
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss:.4f}")
    model.eval()
    pred = model(x, edge_index).argmax(dim=-1)
    for name, rows in (("train", mask), ("rest", ~mask)):
        print(f"{name} {int((pred[rows] == y[rows]).sum())} of {int(rows.sum())}")
    counts = torch.bincount(edge_index[1], minlength=x.size(0))
    print(f"edges {edge_index.size(1)} degrees {counts.tolist()}")


if __name__ == "__main__":
    torch.manual_seed(12)
    train(build())
