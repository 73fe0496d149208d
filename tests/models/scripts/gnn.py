"""Message passing by `index_add` and `scatter_reduce`, with attention over edges, on a plan of three rooms."""
# mypy: ignore-errors

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROOMS, FLOOR = 3, 4


@dataclass
class Graph:
    """Edges from `source` to `target` between `count` nodes."""

    source: Tensor
    target: Tensor
    count: int

    @classmethod
    def both_ways(cls, edges: Tensor, count: int) -> "Graph":
        """A graph with every edge in both directions, and none twice."""
        edges = torch.unique(torch.cat((edges, edges.flip(1))), dim=0)
        return cls(*edges.unbind(dim=1), count)

    def sum_by_target(self, messages: Tensor) -> Tensor:
        """The sum of the messages of the edges to each node."""
        return messages.new_zeros(self.count, *messages.shape[1:]).index_add_(0, self.target, messages)

    def in_degrees(self) -> Tensor:
        """The number of edges to each node."""
        return torch.zeros(self.count).scatter_add_(0, self.target, torch.ones(len(self.target)))

    def softmax(self, scores: Tensor) -> Tensor:
        """A softmax over the edges to each node, for each column of scores."""
        where = self.target[:, None].expand_as(scores)
        start = torch.full((self.count, scores.size(1)), float("-inf"))
        maxima = start.scatter_reduce(0, where, scores.detach(), "amax")
        exponentials = torch.exp(scores - torch.gather(maxima, 0, where))
        return exponentials / self.sum_by_target(exponentials).index_select(0, self.target)


class MeanConvolution(nn.Module):
    """Linear maps of a node's features and of the mean of its neighbours'."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.root = nn.Linear(in_features, out_features)
        self.neighbours = nn.Linear(in_features, out_features, bias=False)

    def forward(self, nodes: Tensor, graph: Graph) -> Tensor:
        weight = graph.in_degrees().reciprocal()
        # A node may have no neighbours.
        weight[weight.isinf()] = 0.0
        messages = self.neighbours(nodes)[graph.source] * weight[graph.target, None]
        return torch.index_add(self.root(nodes), 0, graph.target, messages, alpha=0.9)


class AttentionConvolution(nn.Module):
    """Multi-head attention of nodes to their neighbours."""

    def __init__(self, in_features: int, out_features: int, heads: int) -> None:
        super().__init__()
        self.features = nn.Linear(in_features, heads * out_features, bias=False)
        self.attention = nn.Parameter(torch.empty(2, heads, out_features))
        nn.init.xavier_uniform_(self.attention)

    def forward(self, nodes: Tensor, graph: Graph) -> Tensor:
        features = self.features(nodes).unflatten(1, self.attention.shape[1:])
        source_scores, target_scores = torch.einsum("nea,xea->xne", features, self.attention)
        weights = graph.softmax(F.leaky_relu(source_scores[graph.source] + target_scores[graph.target], 0.3))
        return graph.sum_by_target(weights[..., None] * features[graph.source]).flatten(1)


class RoomClassifier(nn.Module):
    def __init__(self, inputs: int, width: int = 12) -> None:
        super().__init__()
        self.first = MeanConvolution(inputs, width)
        self.second = AttentionConvolution(width, width // 3, heads=3)
        self.norm = nn.BatchNorm1d(width, affine=True)
        self.last = MeanConvolution(width, ROOMS)

    def forward(self, nodes: Tensor, graph: Graph) -> Tensor:
        nodes = torch.relu(self.first(nodes, graph))
        nodes = nodes + F.elu(self.norm(self.second(nodes, graph)))
        return self.last(nodes, graph).log_softmax(dim=1)


def floor_plan() -> tuple[Tensor, Graph, Tensor]:
    """Square rooms whose cells see the rows and columns they are in, doors between rooms, and a cell without edges."""
    cells = torch.arange(ROOMS * FLOOR * FLOOR).view(ROOMS, FLOOR, FLOOR)
    pairs = [
        cells[:, torch.combinations(torch.arange(FLOOR))].movedim(2, -1),
        cells[:, :, torch.combinations(torch.arange(FLOOR))],
        torch.stack((cells[:-1, 2, -1], cells[1:, 2, 0]), dim=-1),
    ]
    outside = cells.numel()
    graph = Graph.both_ways(torch.cat([pair.reshape(-1, 2) for pair in pairs]), outside + 1)
    rooms = torch.cat([cells.flatten().div(FLOOR * FLOOR, rounding_mode="trunc"), torch.tensor([ROOMS - 1])])
    return torch.eye(outside + 1), graph, rooms


def build() -> nn.Module:
    return RoomClassifier(ROOMS * FLOOR * FLOOR + 1)


def train(model: nn.Module) -> None:
    nodes, graph, rooms = floor_plan()
    labelled = torch.zeros(graph.count, dtype=torch.bool).index_fill_(
        0, torch.tensor([5, 10, 20, 27, 38, 41, 48]), True
    )
    optimizer = torch.optim.Adam(
        [
            {"params": model.first.parameters(), "weight_decay": 1e-3},
            {"params": [*model.second.parameters(), *model.norm.parameters()], "lr": 0.01},
            {"params": model.last.parameters()},
        ],
        lr=0.015,
    )
    for epoch in range(18):
        loss = F.nll_loss(model.train()(nodes, graph)[labelled], rooms[labelled])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch:2d}: loss {loss.item():.4f}")
    with torch.no_grad():
        predicted = model.eval()(nodes, graph).max(dim=1).indices
    for kind, cells in (("labelled", labelled), ("other", labelled.logical_not())):
        print(f"{predicted.eq(rooms).logical_and(cells).sum().item()} of {cells.sum().item()} {kind} cells are correct")
    print(f"edges {graph.target.numel()}, degrees {torch.bincount(graph.target, minlength=graph.count).tolist()}")
    print(f"same degrees: {torch.equal(graph.in_degrees().long(), graph.target.bincount(minlength=graph.count))}")


if __name__ == "__main__":
    torch.manual_seed(31)
    train(build())
