"""A GPT's training step as ops and sizes: a realistic input of memory planning."""

from __future__ import annotations

import attrs

from vmflow.graph_mode.memory_planning import Op

# Of the position of the input to the position of the output, for ops with one of each.
SHARE = ((0, 0),)


@attrs.frozen
class _Node:
    """The backward pass's view of an op: the operands that it reads again, and whether its gradient may be in place."""

    inputs: tuple[int, ...]
    parameters: tuple[int, ...]
    output: int
    saved: tuple[int, ...]
    elementwise: bool


@attrs.define
class TrainingStep:
    """Ops as they are recorded.

    Attributes:
        ops: in program order.
        nbytes: of each buffer, by id.
        pinned: inputs and parameters, which have memory of their own.
    """

    ops: list[Op] = attrs.field(factory=list)
    nbytes: dict[int, int] = attrs.field(factory=dict)
    pinned: list[int] = attrs.field(factory=list)
    _nodes: list[_Node] = attrs.field(factory=list)

    def variable(self, *shape: int) -> int:
        """A parameter or an input."""
        name = self._buffer(*shape)
        self.pinned.append(name)
        return name

    def forward(
        self,
        inputs: tuple[int, ...],
        shape: tuple[int, ...],
        parameters: tuple[int, ...] = (),
        *,
        saves: str = "inputs",
        elementwise: bool = False,
        statistics: tuple[int, ...] = (),
    ) -> int:
        """An op whose backward pass reads its inputs again, or its output, or nothing."""
        output = self._buffer(*shape)
        kept = tuple(self._buffer(*statistics) for _ in range(2)) if statistics else ()
        self.ops.append(Op((*inputs, *parameters), (output, *kept), SHARE if elementwise else ()))
        saved = {"inputs": (*inputs, *kept), "output": (output,), "nothing": ()}[saves]
        self._nodes.append(_Node(inputs, parameters, output, saved, elementwise))
        return output

    def backward(self, loss: int) -> None:
        """The gradients in reverse, those of the parameters applied at the very end."""
        gradients = {loss: self._buffer(1)}
        self.ops.append(Op((), (gradients[loss],)))
        of_parameters: list[int] = []
        for node in reversed(self._nodes):
            arriving = gradients.pop(node.output)
            for name in node.inputs:
                if name not in self.pinned:
                    share = SHARE if node.elementwise else ()
                    self._accumulate(gradients, name, (arriving, *node.saved, *node.parameters), share)
            for name in node.parameters:
                of_parameters.append(self._like(name))
                self.ops.append(Op((arriving, *node.saved), (of_parameters[-1],)))
        self.ops.append(Op((*of_parameters, *self.pinned), ()))

    def _accumulate(
        self, gradients: dict[int, int], name: int, reads: tuple[int, ...], share: tuple[tuple[int, int], ...]
    ) -> None:
        gradient = self._like(name)
        self.ops.append(Op(reads, (gradient,), share))
        if name in gradients:
            total = self._like(name)
            self.ops.append(Op((gradients[name], gradient), (total,), ((0, 0), (1, 0))))
            gradient = total
        gradients[name] = gradient

    def _buffer(self, *shape: int) -> int:
        count = 1
        for size in shape:
            count *= size
        self.nbytes[len(self.nbytes)] = 4 * count
        return len(self.nbytes) - 1

    def _like(self, name: int) -> int:
        self.nbytes[len(self.nbytes)] = self.nbytes[name]
        return len(self.nbytes) - 1


def gpt(
    layers: int, batch: int = 4, time: int = 128, width: int = 256, heads: int = 8, words: int = 5000
) -> TrainingStep:
    """One step of a GPT of so many layers, in float32 and without dropout."""
    step = TrainingStep()
    tokens, of_width = step.variable(batch, time), (batch, time, width)
    x = step.forward((tokens,), of_width, (step.variable(words, width),), saves="nothing")
    for _ in range(layers):
        x = _feed_forward(step, _attention(step, x, of_width, heads), of_width)
    x = _normalised(step, x, of_width)
    logits = step.forward((x,), (batch, time, words), (step.variable(width, words),))
    chances = step.forward((logits,), (batch, time, words), saves="output", elementwise=True)
    step.backward(step.forward((chances, tokens), (1,)))
    return step


def _normalised(step: TrainingStep, x: int, shape: tuple[int, ...]) -> int:
    scale, shift = step.variable(shape[-1]), step.variable(shape[-1])
    return step.forward((x,), shape, (scale, shift), statistics=shape[:-1])


def _linear(step: TrainingStep, x: int, shape: tuple[int, ...], size: int) -> int:
    out = (*shape[:-1], size)
    x = step.forward((x,), out, (step.variable(shape[-1], size),))
    return step.forward((x,), out, (step.variable(size),), saves="nothing", elementwise=True)


def _attention(step: TrainingStep, x: int, shape: tuple[int, ...], heads: int) -> int:
    batch, time, width = shape
    every_pair = (batch, heads, time, time)
    joint = _linear(step, _normalised(step, x, shape), shape, 3 * width)
    query, key, value = (step.forward((joint,), shape, saves="nothing") for _ in range(3))
    scores = step.forward((query, key), every_pair)
    scores = step.forward((scores,), every_pair, saves="nothing", elementwise=True)
    weights = step.forward((scores,), every_pair, saves="output", elementwise=True)
    mixed = step.forward((weights, value), shape)
    mixed = step.forward((mixed,), shape, saves="nothing")
    return step.forward((x, _linear(step, mixed, shape, width)), shape, saves="nothing", elementwise=True)


def _feed_forward(step: TrainingStep, x: int, shape: tuple[int, ...]) -> int:
    wide = (*shape[:-1], 4 * shape[-1])
    inner = _linear(step, _normalised(step, x, shape), shape, wide[-1])
    inner = step.forward((inner,), wide, elementwise=True)
    return step.forward((x, _linear(step, inner, wide, shape[-1])), shape, saves="nothing", elementwise=True)
