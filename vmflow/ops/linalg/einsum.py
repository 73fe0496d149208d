"""`einsum`: sums of products, written as equations of indices, computed by permutations and batched matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from vmflow.operands import check_tensors, described
from vmflow.ops.declaration import function
from vmflow.ops.reduction.reduction import sum as sum_of
from vmflow.ops.shape.view import expand, permute, reshape

from .linear_algebra import matmul

if TYPE_CHECKING:
    from vmflow.tensors import Tensor

# The label of a dimension: its letter in the equation; or, for the dimensions that ``...`` stands for, -1 for the last
# of them, -2 for the one before, and so on.
Label = str | int
Labels = list[Label]


@function()
def einsum(equation: str, *operands: Tensor) -> Tensor:
    """The products of the operands' elements, summed over all indices that are not in the output.

    ``einsum("ij,jk->ik", a, b)`` is the matrix product.  Without an arrow, the output has the dimensions of ``...``,
    then the indices that occur once, in alphabetical order, capitals first.  ``...`` stands for any number of
    dimensions, which broadcast.  An index that occurs twice in an operand selects a diagonal.

    Args:
        equation: a group of letters for each operand, separated by commas, and optionally ``->`` and the letters of the
            output.
        operands: of one dtype; a single list of tensors is allowed as well.

    Raises:
        TypeError: if the equation is no string, an operand no tensor, the dtypes differ, or several operands are bool.
        ValueError: if the equation is malformed, or does not fit the shapes of the operands.

    Example:
        >>> flow.einsum("ij,j->i", flow.tensor([[1, 2], [3, 4]]), flow.tensor([1, 10]))
        tensor([21, 43])
        >>> flow.einsum("ii", flow.tensor([[1, 2], [3, 4]]))
        tensor(5)
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(equation, str):
        raise TypeError(f"einsum: the equation must be a string, not {described(equation)}")
    check_tensors("einsum", *operands)
    inputs, output = _parse(equation, operands)
    sizes = _sizes(inputs, operands)
    terms = [_without_repeats(operand, labels) for operand, labels in zip(operands, inputs, strict=True)]
    tensor, labels = terms[0]
    for position, (other, other_labels) in enumerate(terms[1:], 1):
        later = {label for _, later_labels in terms[position + 1 :] for label in later_labels}
        tensor, labels = _product(tensor, labels, other, other_labels, later.union(output), sizes)
    tensor, labels = _summed(tensor, labels, set(output))
    return permute(tensor, [labels.index(label) for label in output])


def _parse(equation: str, operands: Sequence[Tensor]) -> tuple[list[Labels], Labels]:
    """Parse an equation: return the labels of each operand's dimensions, and those of the output's dimensions."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    groups = left.split(",")
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
        letters = left.replace("...", "").replace(",", "")
        return inputs, ellipsis + sorted([letter for letter in set(letters) if letters.count(letter) == 1])
    letters = right.replace("...", "", 1)
    if len(set(letters)) != len(letters) or not set(letters) <= set(left):
        raise ValueError(f"einsum: the output {right!r} of {equation!r} must name indices of the operands, each once")
    if not (letters.isalpha() or not letters):
        raise ValueError(f"einsum: malformed output {right!r} in {equation!r}")
    output: Labels = list(letters)
    start = right.find("...")
    if start >= 0:
        output[start:start] = ellipsis
    return inputs, output


def _sizes(inputs: list[Labels], operands: Sequence[Tensor]) -> dict[Label, int]:
    """Map each label to the size of its dimensions in the operands, where sizes of 1 broadcast."""
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
    """Take the diagonal of dimensions that have the same label; return the tensor and its labels, each once."""
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
            labels = [other for place, other in enumerate(labels) if place not in (first, second)] + [label]
    return tensor, labels


def _summed(tensor: Tensor, labels: Labels, kept: set[Label]) -> tuple[Tensor, Labels]:
    """Sum a tensor over the dimensions whose labels are not in `kept`; return the sum and its labels."""
    dims = [place for place, label in enumerate(labels) if label not in kept]
    return (sum_of(tensor, dims), [label for label in labels if label in kept]) if dims else (tensor, labels)


def _product(
    left: Tensor, of_left: Labels, right: Tensor, of_right: Labels, kept: set[Label], sizes: dict[Label, int]
) -> tuple[Tensor, Labels]:
    """Multiply two operands by a batched matrix product that sums over all labels not in `kept`.

    Returns the product and its labels, all in `kept`: those of both operands, of `left` alone, then of `right` alone.
    `sizes` has the broadcast size of each label."""
    left, of_left = _summed(left, of_left, kept.union(of_right))
    right, of_right = _summed(right, of_right, kept.union(of_left))
    batch = [label for label in of_left if label in of_right and label in kept]
    inner = [label for label in of_left if label in of_right and label not in kept]
    rows = [label for label in of_left if label not in of_right]
    columns = [label for label in of_right if label not in of_left]

    def shaped(tensor: Tensor, labels: Labels, *groups: Labels) -> Tensor:
        shared = {*batch, *inner}
        ordered = permute(tensor, [labels.index(label) for group in groups for label in group])
        ordered = expand(ordered, [sizes[label] if label in shared else -1 for group in groups for label in group])
        parts = iter(ordered.shape)
        return reshape(ordered, [prod([next(parts) for _ in group]) for group in groups])

    product = matmul(shaped(left, of_left, batch, rows, inner), shaped(right, of_right, batch, inner, columns))
    free = {label: size for label, size in zip(of_left, left.shape, strict=True) if label in rows}
    free.update({label: size for label, size in zip(of_right, right.shape, strict=True) if label in columns})
    return product.reshape([free.get(label, sizes[label]) for label in (*batch, *rows, *columns)]), [
        *batch,
        *rows,
        *columns,
    ]
