"""A graph whose `build` iterates over a loader is given the loader's next batches at each launch."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

import vmflow as flow
from vmflow import nn
from vmflow.utils.data import DataLoader, Dataset, TensorDataset


def numbers(count: int) -> TensorDataset:
    return TensorDataset(flow.arange(count, dtype=flow.float32).reshape(count, 1))


class Of(nn.Graph):
    """Doubles the next batch."""

    def __init__(self, loader: Any) -> None:
        super().__init__()
        self.loader = loader

    def build(self) -> Any:
        (x,) = next(iter(self.loader))
        return x * 2


def firsts(results: list[flow.Tensor]) -> list[list[float]]:
    return [result.reshape(-1).tolist() for result in results]


@pytest.mark.parametrize("workers", [0, 2])
def test_each_launch_takes_the_next_batch_and_begins_again_at_the_end(workers: int) -> None:
    graph = Of(DataLoader(numbers(6), batch_size=2, num_workers=workers))
    assert firsts([graph() for _ in range(5)]) == [[0, 2], [4, 6], [8, 10], [0, 2], [4, 6]]
    assert firsts([graph.run_by_vm()]) == [[8, 10]]


def test_an_epoch_is_shuffled_as_in_eager_code() -> None:
    flow.manual_seed(1)
    graph = Of(DataLoader(numbers(8), batch_size=2, shuffle=True))
    epochs = [sorted([number for batch in firsts([graph() for _ in range(4)]) for number in batch]) for _ in range(2)]
    assert epochs == [[0, 2, 4, 6, 8, 10, 12, 14]] * 2


def test_a_loop_over_a_loader_takes_all_of_it() -> None:
    class Sum(Of):
        def build(self) -> Any:
            total = flow.zeros(1)
            for (x,) in self.loader:
                total = total + x.sum(0)
            return total

    data = flow.arange(4, dtype=flow.float32).reshape(4, 1)
    graph = Sum(DataLoader(TensorDataset(data), batch_size=2))
    assert graph().tolist() == [6]
    data += 10
    assert graph().tolist() == [46]


def test_an_iterator_from_outside_ends_as_in_eager_code() -> None:
    batches = iter(DataLoader(numbers(4), batch_size=2))

    class Next(nn.Graph):
        def build(self) -> Any:
            return next(batches)[0] * 2

    graph = Next()
    assert firsts([graph(), graph()]) == [[0, 2], [4, 6]]
    with pytest.raises(StopIteration):
        graph()


def test_beside_an_argument_and_an_optimizer() -> None:
    model = nn.Linear(1, 1, bias=False)
    with flow.no_grad():
        model.weight.fill_(1.0)
    loader = DataLoader(numbers(4), batch_size=2)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1)

    class Train(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, scale: flow.Tensor) -> Any:
            (x,) = next(iter(loader))
            loss = (self.model(x) * scale).mean()
            loss.backward()
            return loss

    graph = Train()
    assert graph(flow.tensor(2.0)).item() == 1.0  # 2 * mean(0, 1)
    assert graph(flow.tensor(2.0)).item() == pytest.approx((1 - 0.1 * 1.0) * 5.0)


def test_in_micro_batches() -> None:
    class Parts(Of):
        def build(self) -> Any:
            (x,) = next(iter(self.loader))
            return x.sum()

    graph = Parts(DataLoader(numbers(8), batch_size=4))
    graph.config.set_gradient_accumulation_steps(2)
    assert [graph().tolist(), graph().tolist()] == [[1, 5], [9, 13]]


def test_a_batch_without_tensors_cannot_be_cut() -> None:
    class Parts(Of):
        def build(self) -> Any:
            return flow.ones(1) * next(iter(self.loader))

    graph = Parts(DataLoader(numbers(8), batch_size=4, collate_fn=lambda samples: 3))
    graph.config.set_gradient_accumulation_steps(2)
    with pytest.raises(ValueError, match=r"steps\(2\).*no tensor among them"):
        graph()


def test_a_batch_of_another_shape_is_refused_and_left_out() -> None:
    graph = Of(DataLoader(numbers(3), batch_size=2))
    assert firsts([graph()]) == [[0, 2]]
    with pytest.raises(ValueError, match=r"batch.*float32\[2, 1\].*float32\[1, 1\].*drop_last=True"):
        graph()
    assert firsts([graph()]) == [[0, 2]]


def test_with_dynamic_shapes_it_is_taken() -> None:
    graph = Of(DataLoader(numbers(3), batch_size=2)).with_dynamic_input_shape()
    assert firsts([graph() for _ in range(4)]) == [[0, 2], [4], [0, 2], [4]]
    assert len(graph._forms) == 2


def test_a_build_that_fails_loses_no_batch() -> None:
    class Broken(Of):
        fails = True

        def build(self) -> Any:
            result = super().build()
            if self.fails:
                raise KeyError("on purpose")
            return result

    graph = Broken(DataLoader(numbers(4), batch_size=2))
    with pytest.raises(KeyError):
        graph()
    graph.fails = False
    assert firsts([graph()]) == [[0, 2]]


def test_another_form_goes_on_with_the_loader() -> None:
    class Masked(Of):
        def __init__(self, loader: Any) -> None:
            super().__init__(loader)
            self.dropout = nn.Dropout(0.0)

        def build(self) -> Any:
            return self.dropout(next(iter(self.loader))[0])

    graph = Masked(DataLoader(numbers(6), batch_size=2))
    assert firsts([graph()]) == [[0, 1]]
    graph.dropout.origin.eval()
    assert firsts([graph()]) == [[2, 3]]
    graph.dropout.origin.train()
    assert firsts([graph()]) == [[4, 5]]


def test_another_form_is_built_near_the_end_of_a_pass() -> None:
    class Pairs(Of):
        def __init__(self, loader: Any) -> None:
            super().__init__(loader)
            self.factor = 1

        def build(self) -> Any:
            batches = iter(self.loader)
            return [next(batches)[0] * self.factor, next(batches)[0]]

    graph = Pairs(DataLoader(numbers(5)))
    assert firsts([*graph(), *graph()]) == [[0], [1], [2], [3]]
    graph.factor = 10
    assert firsts([*graph(), *graph()]) == [[40], [0], [10], [2]]


def test_a_loop_in_a_form_built_in_the_middle_of_a_pass_takes_as_many_batches_as_others() -> None:
    class Part(Of):
        def build(self, whole: bool) -> Any:  # type: ignore[override]
            if not whole:
                return next(iter(self.loader))[0] * 1
            return flow.cat([x for (x,) in self.loader])

    graph = Part(DataLoader(numbers(3))).with_dynamic_input_shape()
    assert firsts([graph(False), graph(True), graph(False), graph(True)]) == [[0], [1, 2, 0], [1], [2, 0, 1]]


def test_loaders_stay_in_step_where_a_batch_of_one_does_not_fit() -> None:
    class Both(nn.Graph):
        def build(self) -> Any:
            return [next(iter(one))[0] * 1, next(iter(other))[0] * 1]

    one, other = DataLoader(numbers(6)), DataLoader(numbers(5), batch_size=2)
    graph = Both()
    assert firsts([*graph(), *graph()]) == [[0], [0, 1], [1], [2, 3]]
    with pytest.raises(ValueError, match="the batches of this call were dropped"):
        graph()
    assert firsts(graph()) == [[3], [0, 1]]


def test_no_batch_is_taken_where_another_iterator_has_ended() -> None:
    class Both(nn.Graph):
        def build(self) -> Any:
            return [next(one)[0] * 1, next(other)[0] * 1]

    one, other = iter(DataLoader(numbers(3))), iter(DataLoader(numbers(1)))
    graph = Both()
    assert firsts(graph()) == [[0], [0]]
    with pytest.raises(StopIteration):
        graph()
    assert next(one)[0].tolist() == [[2]]  # 1 is in the graph's queue


class Failing(Dataset[Any]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> flow.Tensor:
        if index == 1:
            raise OSError("sample 1 cannot be read")
        return flow.tensor([float(index)])


def test_a_sample_that_cannot_be_read_raises_at_the_call() -> None:
    class Next(nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.loader = DataLoader(Failing())

        def build(self) -> Any:
            return next(iter(self.loader)) * 2

    graph = Next()
    assert firsts([graph()]) == [[0]]
    with pytest.raises(OSError, match="sample 1"):
        graph()


def test_an_empty_loader_raises_as_in_eager_code() -> None:
    with pytest.raises(StopIteration):
        Of(DataLoader(numbers(0), batch_size=2))()


async def test_in_a_coroutine() -> None:
    graph = Of(DataLoader(numbers(4), batch_size=2))
    assert (await graph()).tolist() == [[0], [2]]
    assert (await graph()).tolist() == [[4], [6]]


def test_it_is_not_saved(tmp_path: pathlib.Path) -> None:
    graph = Of(DataLoader(numbers(4), batch_size=2))
    graph().numpy()
    with pytest.raises(RuntimeError, match="takes batches of a DataLoader"):
        flow.save(graph, tmp_path / "graph")
