"""The pictures in the documentation, which are drawn from a real graph and a real machine.

``python -m tests.docs.pictures`` writes them to ``docs/pictures``; a test compares the files with new drawings.
"""

from __future__ import annotations

import asyncio
from typing import Final, Literal, get_args

import vmflow as flow
from vmflow import nn

from .page import DOCS

FOLDER: Final = DOCS / "pictures"

Part = Literal["job", "full_job", "plan"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)


class LinearStep(nn.Graph):
    """A step of gradient descent for a linear layer.  No other graph has this name, so that it is number 0."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.add_optimizer(flow.optim.SGD(self.layer.parameters(), lr=0.1))

    def build(self, x: flow.Tensor, target: flow.Tensor) -> flow.Tensor:
        """The mean squared error before the step."""
        loss: flow.Tensor = ((self.layer(x) - target) ** 2).mean()
        loss.backward()
        return loss


async def snapshot() -> str:
    """An SVG image of the instructions of two devices, of which the simulated one has finished nothing yet."""
    async with flow.VirtualMachine("example") as machine:
        x = flow.ones(100, 100, device="sim")
        y = (x @ x).exp()
        total = y.to("cpu").sum() + y.sum().to("cpu")
        await asyncio.sleep(0)  # the machine takes the instructions over in a turn of the loop
        image = machine.snapshot().to_svg()
        await total
    return image


def drawings() -> dict[str, str]:
    """SVG images by their names: those parts of the graph that `Graph.draw` knows, and "snapshot"."""
    step = LinearStep()
    step(flow.ones(8, 4), flow.zeros(8, 2)).item()
    return {**{part: step.draw(part=part) for part in PARTS}, "snapshot": asyncio.run(snapshot())}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, image in drawings().items():
        (FOLDER / f"{name}.svg").write_text(image, encoding="utf-8")
