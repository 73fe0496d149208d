"""`einsum`: sums of products, written as an equation of indices; made of permutations and batched matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from vmflow.ops.declaration import function
from vmflow.ops.reduction.reduction import sum as sum_of
from vmflow.ops.shape.view import expand, permute, reshape

from .linear_algebra import matmul

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

# A dimension's name: a letter, or a negative number for one of those that an ellipsis stands for, counted from the end.
Label = str | int
Labels = list[Label]


@function()
def einsum(equation: str, *operands: Tensor) -> Tensor:
    """The sum, over all indices that are not in the output, of the products of the operands' elements.

    ``einsum("ij,jk->ik", a, b)`` is the matrix product.  Without an arrow, the output has the indices that occur once,
    in alphabetical order.  ``...`` stands for any dimensions, which broadcast.  An index that occurs twice in an
    operand means its diagonal.  Operands are combined from left to right.

    Args:
        equation: one group of letters for each operand, separated by commas, and perhaps ``->`` and the output's.
        operands: of one dtype; also given as one list.

    Raises:
        ValueError: if the equation is malformed, or does not fit the operands.
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    inputs, output = _parse(equation, operands)
    sizes = _sizes(inputs, operands)
    terms = [_without_repeats(operand, labels) for operand, labels in zip(operands, inputs, strict=True)]
    tensor, labels = terms[0]
    for position, (other, others) in enumerate(terms[1:], 1):
        later = {label for _, those in terms[position + 1 :] for label in those}
        tensor, labels = _product(tensor, labels, other, others, later.union(output), sizes)
    tensor, labels = _summed(tensor, labels, set(output))
    return permute(tensor, [labels.index(label) for label in output])


def _parse(equation: str, operands: Sequence[Tensor]) -> tuple[list[Labels], Labels]:
    """The labels of each operand's dimensions, and of the output's."""
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    groups = given.split(",")
    if not operands or len(groups) != len(operands):
        raise ValueError(f"einsum: {equation!r} is for {len(groups)} operands, got {len(operands)}")
    inputs: list[Labels] = []
    hidden = 0
    for group, operand in zip(groups, operands, strict=True):
        letters = group.replace("...", "", 1)
        extra = operand.ndim - len(letters)
        if not (letters.isalpha() or not letters) or extra < 0 or (extra > 0 and letters == group):
            raise ValueError(
                f"einsum: {group!r} in {equation!r} does not fit an operand of shape {list(operand.shape)}"
            )
        start = group.find("...")
        labels: Labels = list(letters)
        if start >= 0:
            labels[start:start] = range(-extra, 0)
            hidden = max(hidden, extra)
        inputs.append(labels)
    ellipsis: Labels = list(range(-hidden, 0))
    if not arrow:
        letters = given.replace("...", "").replace(",", "")
        return inputs, ellipsis + sorted([letter for letter in set(letters) if letters.count(letter) == 1])
    letters = wanted.replace("...", "", 1)
    if len(set(letters)) != len(letters) or not set(letters) <= set(given):
        raise ValueError(f"einsum: the output {wanted!r} of {equation!r} must name indices of the operands, each once")
    if not (letters.isalpha() or not letters):
        raise ValueError(f"einsum: malformed output {wanted!r} in {equation!r}")
    output: Labels = list(letters)
    start = wanted.find("...")
    if start >= 0:
        output[start:start] = ellipsis
    return inputs, output


def _sizes(inputs: list[Labels], operands: Sequence[Tensor]) -> dict[Label, int]:
    """The size of each index; one that is 1 somewhere broadcasts."""
    sizes: dict[Label, int] = {}
    for labels, operand in zip(inputs, operands, strict=True):
        for label, size in zip(labels, operand.shape, strict=True):
            if sizes.setdefault(label, size) != size and size != 1:
                if sizes[label] != 1:
                    name = repr(label) if isinstance(label, str) else "'...'"
                    raise ValueError(f"einsum: index {name} has size {sizes[label]} in one place and {size} in another")
                sizes[label] = size
    return sizes


def _without_repeats(tensor: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """Diagonals for the indices that occur more than once."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if tensor.shape[first] != tensor.shape[second]:
                raise ValueError(
                    f"einsum: index {label!r} occurs twice in an operand, with sizes {tensor.shape[first]} and "
                    f"{tensor.shape[second]}"
                )
            tensor = tensor.diagonal(0, first, second)
            labels = [value for place, value in enumerate(labels) if place not in (first, second)] + [label]
    return tensor, labels


def _summed(tensor: Tensor, labels: Labels, kept: set[Label]) -> tuple[Tensor, Labels]:
    """Summed over the indices that are not kept."""
    dims = [place for place, label in enumerate(labels) if label not in kept]
    return (sum_of(tensor, dims), [value for value in labels if value in kept]) if dims else (tensor, labels)


def _product(
    left: Tensor, of_left: Labels, right: Tensor, of_right: Labels, kept: set[Label], sizes: dict[Label, int]
) -> tuple[Tensor, Labels]:
    """Two operands made one, as a batched matrix product, summed over the indices that nobody needs any more."""
    left, of_left = _summed(left, of_left, kept.union(of_right))
    right, of_right = _summed(right, of_right, kept.union(of_left))
    batch = [value for value in of_left if value in of_right and value in kept]
    inner = [value for value in of_left if value in of_right and value not in kept]
    rows = [value for value in of_left if value not in of_right]
    columns = [value for value in of_right if value not in of_left]

    def shaped(tensor: Tensor, labels: Labels, *groups: Labels) -> Tensor:
        shared = {*batch, *inner}
        ordered = permute(tensor, [labels.index(value) for group in groups for value in group])
        ordered = expand(ordered, [sizes[value] if value in shared else -1 for group in groups for value in group])
        parts = iter(ordered.shape)
        return reshape(ordered, [prod([next(parts) for _ in group]) for group in groups])

    product = matmul(shaped(left, of_left, batch, rows, inner), shaped(right, of_right, batch, inner, columns))
    free = {label: size for label, size in zip(of_left, left.shape, strict=True) if label in rows}
    free.update({label: size for label, size in zip(of_right, right.shape, strict=True) if label in columns})
    return product.reshape([free.get(row, sizes[row]) for row in (*batch, *rows, *columns)]), [*batch, *rows, *columns]
