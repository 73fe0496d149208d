"""Stream tokens from a small language model, each as soon as it is known.

A GRU learns one sentence, letter by letter, in a few seconds.  Then a session streams the continuation of a prompt: to
this program, or with --serve to HTTP clients, as server-sent events.

    python examples/stream_tokens.py [--steps 150] [--seed 0] [--prompt "Tokens "] [--serve]

    curl -N -d '{"inputs": [84, 111, 107]}' -H 'content-type: application/json' localhost:8000/stream

A prompt is a list of character codes, as [84, 111, 107] for "Tok".
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

import vmflow as flow
import vmflow.nn.functional as F
from vmflow import nn, serving

TEXT = "Tokens come one by one, each as soon as it is known, and stop when nobody reads them.\n"
CODES = 256  # the values of a byte, so that no code can be out of range
MOST_TOKENS = 200

# Prompts differ in length; they are padded to one of these lengths to be computed together.
LENGTH = serving.Dim("length", (16, 64))


class Writer(nn.Module):
    """Maps character codes (batch, length) to scores (batch, length, codes) of the next code after each."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CODES, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, CODES)

    def forward(self, codes: flow.Tensor) -> flow.Tensor:
        scores, _ = self.step(codes, None)
        return scores

    def step(self, codes: flow.Tensor, state: flow.Tensor | None) -> tuple[flow.Tensor, flow.Tensor]:
        """The scores after each code, and the state from which to continue."""
        outputs, state = self.gru(self.embedding(codes.to(flow.int64)), state)
        return self.head(outputs), state


async def train(model: Writer, steps: int) -> float:
    """Learn the sentence, and return the last loss."""
    codes = flow.tensor([[ord(letter) for letter in TEXT]])
    optimizer = flow.optim.Adam(model.parameters(), lr=0.01)
    loss = 0.0
    for _ in range(steps):
        error = F.cross_entropy(model(codes[:, :-1])[0], codes[0, 1:])
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        loss = (await error).item()
    return loss


# `no_grad` as a decorator: a `with` block open across a yield would also apply to the code that reads the tokens.
@flow.no_grad()
async def tokens(model: Writer, prompt: Any) -> AsyncIterator[str]:
    """The stream function of the session: yields `MOST_TOKENS` characters after a prompt, or fewer to the line's end.

    Args:
        model: the session's model.
        prompt: character codes of one request, a uint8 array of shape (length,).
    """
    codes, state = flow.from_numpy(prompt[np.newaxis]), None
    for _ in range(MOST_TOKENS):
        scores, state = model.step(codes, state)
        # Awaited, so that other tasks of the event loop run meanwhile.
        best = (await scores[0, -1].argmax()).item()
        if chr(best) == "\n":
            return
        yield chr(best)
        codes = flow.tensor([[best]])


def session_of(model: Writer) -> serving.InferenceSession:
    """A session that answers with scores, or streams tokens."""
    return serving.InferenceSession(
        model.eval(),
        inputs=serving.TensorSpec((LENGTH,), flow.uint8),
        outputs=[(LENGTH, CODES)],
        max_batch=4,
        stream=tokens,
        name="tokens",
    )


async def write(session: serving.InferenceSession, prompt: str) -> str:
    """Print a prompt and its continuation, token by token, and return both."""
    written = prompt
    print(prompt, end="", flush=True)
    codes = [ord(letter) for letter in prompt]
    # Closed immediately when the reading ends early, so that no more tokens are computed.
    async with contextlib.aclosing(session.stream(codes)) as stream:
        async for token in stream:
            written += token
            print(token, end="", flush=True)
    print()
    return written


async def main(steps: int, seed: int, prompt: str) -> tuple[Writer, str]:
    """Train and write; returns the model and the text."""
    flow.manual_seed(seed)
    model = Writer()
    loss = await train(model, steps)
    print(f"loss {loss:.3f} after {steps} steps")
    async with session_of(model) as session:
        return model, await write(session, prompt)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prompt", default="Tokens ")
    parser.add_argument("--serve", action="store_true", help="serve on http://127.0.0.1:8000, until Ctrl+C")
    options = parser.parse_args()
    trained, _ = asyncio.run(main(options.steps, options.seed, options.prompt))
    if options.serve:
        import uvicorn

        uvicorn.run(serving.app(session_of(trained)))
