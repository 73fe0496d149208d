"""State dicts of global tensors: saved whole or in parts, and loaded by other ranks with other spreads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmflow as flow
from vmflow import distributed as dist, nn, optim, sbp
from vmflow.distributed import checkpoint
from vmflow.distributed.sbp import NdSbp

pytestmark = pytest.mark.host


def _model(where: flow.placement, nd: NdSbp) -> nn.Module:
    flow.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))
    return model.to_global(where, (sbp.broadcast,) * len(nd)).to_global(sbp=nd)


def _train(model: nn.Module, optimizer: optim.Optimizer, steps: int, seed: int) -> list[float]:
    parameter = next(model.parameters())
    where, nd = parameter.placement, (sbp.broadcast,) * len(parameter.sbp)
    chance = np.random.default_rng(seed)
    losses = []
    for _ in range(steps):
        x = flow.tensor(chance.normal(size=(6, 5)).astype(np.float32), placement=where, sbp=nd)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


ONE = (4, [0, 1, 2, 3], (sbp.split(0),))
WAYS: list[tuple[int, Any, NdSbp]] = [
    ONE,
    (3, [0, 1, 2], (sbp.split(0),)),
    (2, [0, 1], (sbp.broadcast,)),
    (4, [[0, 1], [2, 3]], (sbp.split(0), sbp.broadcast)),
    (4, [[0, 1], [2, 3]], (sbp.split(0), sbp.split(0))),
    (1, [0], (sbp.broadcast,)),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_training_goes_on_from_the_parts_of_others(way: tuple[int, Any, NdSbp], tmp_path: Path) -> None:
    folder = tmp_path / "step"

    def first() -> list[float]:
        model = _model(flow.placement("cpu", ONE[1]), ONE[2])
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        _train(model, optimizer, 3, seed=1)
        checkpoint.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, folder)
        return _train(model, optimizer, 3, seed=2)

    def second() -> list[float]:
        _, ranks, nd = way
        model = _model(flow.placement("cpu", ranks), nd)
        with flow.no_grad():
            for tensor in model.state_dict().values():
                if tensor.is_floating_point():
                    tensor.fill_(9.0)
        state: dict[str, Any] = {"model": model.state_dict(), "epoch": 0}
        checkpoint.load(state, folder)
        assert state["epoch"] == 3
        optimizer = optim.Adam(model.parameters(), lr=0.5)
        optimizer.load_state_dict(checkpoint.read(folder)["optimizer"])
        return _train(model, optimizer, 3, seed=2)

    wanted = dist.simulate(first, ONE[0])[0]
    assert sorted(os.listdir(folder)) == ["manifest.npz", *[f"rank-{rank}.npz" for rank in range(4)]]
    for losses in dist.simulate(second, way[0]):
        np.testing.assert_allclose(losses, wanted, rtol=1e-5)


@pytest.mark.parametrize("dtype", [flow.float32, flow.bfloat16, flow.complex64, flow.int64, flow.bool_])
def test_parts_of_every_spread_come_back(dtype: flow.dtype, tmp_path: Path) -> None:
    spreads: list[NdSbp] = [
        (sbp.split(0), sbp.split(1)),
        (sbp.split(1), sbp.split(1)),
        (sbp.broadcast, sbp.split(0)),
        (sbp.broadcast, sbp.broadcast),
        (sbp.split(1), sbp.broadcast),
    ]
    if dtype.is_floating_point:
        spreads.append((sbp.partial_sum, sbp.split(0)))
    values = flow.tensor(np.arange(35).reshape(5, 7)).to(dtype)

    def program() -> None:
        where = flow.placement("cpu", [[0, 1], [2, 3]])
        saved = {str(nd): flow.tensor(values, placement=where, sbp=nd) for nd in spreads}
        checkpoint.save({"nested": [saved, (1, 2.5, None, "x", flow.ones(2))]}, tmp_path / "all")
        for nd in spreads:
            targets = {key: flow.zeros(5, 7, dtype=dtype, placement=where, sbp=nd) for key in saved}
            elsewhere = {
                key: flow.zeros(5, 7, dtype=dtype, placement=flow.placement("cpu", [1, 3]), sbp=sbp.split(1))
                for key in saved
            }
            local = {key: flow.zeros(5, 7, dtype=dtype) for key in saved}
            for found in (targets, elsewhere, local):
                checkpoint.load({"nested": [found]}, tmp_path / "all")
            for found in (targets, elsewhere, local):
                for tensor in found.values():
                    if not tensor.is_global or dist.get_rank() in tensor.placement.group:
                        whole = (
                            tensor if not tensor.is_global else tensor.to_global(sbp=(sbp.broadcast,) * len(tensor.sbp))
                        )
                        part = whole.to_local() if whole.is_global else whole
                        np.testing.assert_array_equal(part.float().numpy(), values.float().numpy())
        read = checkpoint.read(tmp_path / "all")
        assert read["nested"][1][:4] == (1, 2.5, None, "x")
        assert all([(each == values).all().item() for each in read["nested"][0].values()])

    dist.simulate(program, 4)


def test_a_state_dict_that_does_not_fit_is_refused_before_anything_changes(tmp_path: Path) -> None:
    def program() -> None:
        where = flow.placement.all("cpu")
        x = flow.ones(4, placement=where, sbp=sbp.split(0))
        checkpoint.save({"a": x, "b": 3, "c": [x * 2]}, tmp_path / "x")
        mine = flow.zeros(4, placement=where, sbp=sbp.split(0))
        for state, error, message in (
            ({"a": mine, "z": mine}, KeyError, r"state_dict\['z'\] was not saved"),
            ({"a": mine, "c": [mine, mine]}, KeyError, r"state_dict\['c'\]\[1\] was not saved"),
            ({"a": mine, "b": mine}, TypeError, r"state_dict\['b'\] is a tensor, and none was saved there"),
            ({"a": flow.zeros(5), "c": [mine]}, ValueError, r"has shape \[5\], and was saved with \[4\]"),
        ):
            with pytest.raises(error, match=message):
                checkpoint.load(state, tmp_path / "x")
        assert mine.to_local().tolist() == [0.0, 0.0]
        with pytest.raises(FileNotFoundError):
            checkpoint.load({}, tmp_path / "missing")
        with pytest.raises(TypeError, match="which cannot be saved"):
            checkpoint.save({"a": {1, 2}}, tmp_path / "bad")
        with pytest.raises(ValueError, match="a dict of the one key 'global tensor' stands for a tensor"):
            checkpoint.save({"a": [{"global tensor": "mine"}]}, tmp_path / "bad")

    dist.simulate(program, 2)


def test_tensors_in_tuples_are_loaded_in_place_and_keep_their_spread(tmp_path: Path) -> None:
    def program() -> None:
        where = flow.placement.all("cpu")
        state = {"pair": (flow.ones(4, placement=where, sbp=sbp.split(0)), (flow.ones(2), 5)), "betas": (0.5, 0.9)}
        checkpoint.save(state, tmp_path / "x")
        halves, local = flow.zeros(4, placement=where, sbp=sbp.split(0)), flow.zeros(2)
        mine: dict[str, Any] = {"pair": (halves, (local, 0)), "betas": (0.0,)}
        with pytest.raises(ValueError, match=r"state_dict\['pair'\]\[1\]\[0\] has shape \[3\]"):
            checkpoint.load({"pair": (halves, (flow.zeros(3), 0))}, tmp_path / "x")
        checkpoint.load(mine, tmp_path / "x")
        assert halves.to_local().tolist() == [1.0, 1.0]
        assert local.tolist() == [1.0, 1.0]
        assert mine["pair"][0] is halves
        assert mine["pair"][1][1] == 5
        assert mine["betas"] == (0.5, 0.9)

    dist.simulate(program, 2)


def test_the_old_folder_is_read_if_saving_ended_between_two_renames(tmp_path: Path) -> None:
    def program() -> None:
        checkpoint.save({"a": flow.full((2,), 3.0)}, tmp_path / "x")

    dist.simulate(program, 2)
    os.replace(tmp_path / "x", tmp_path / "x.old")
    assert checkpoint.read(tmp_path / "x")["a"].tolist() == [3.0, 3.0]


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    def program() -> None:
        where = flow.placement.all("cpu")
        for number in (1.0, 2.0):
            checkpoint.save({"a": flow.full((4,), number, placement=where, sbp=sbp.split(0))}, tmp_path / "x")
        state = {"a": flow.zeros(4, placement=where, sbp=sbp.broadcast)}
        checkpoint.load(state, tmp_path / "x")
        assert state["a"].tolist() == [2.0] * 4

    dist.simulate(program, 3)
    assert os.listdir(tmp_path) == ["x"]


# One file


class _Closed:
    def read(self) -> bytes:
        raise ValueError("I/O operation on closed file")


def test_an_error_of_the_one_rank_that_reads_is_raised_on_all() -> None:
    def program() -> None:
        with pytest.raises(OSError, match="rank 0 could not read the file: I/O operation on closed file"):
            flow.load(_Closed(), global_src_rank=0)  # type: ignore[arg-type]

    dist.simulate(program, 2)
    program()


def test_an_error_without_a_message_is_raised_on_all_ranks() -> None:
    class Unreadable:
        def read(self) -> bytes:
            raise OSError

    def program() -> None:
        with pytest.raises(OSError, match="rank 0 could not read the file: OSError"):
            flow.load(Unreadable(), global_src_rank=0)  # type: ignore[arg-type]

    dist.simulate(program, 2)


def test_a_program_of_one_rank_loads_a_file_for_all(tmp_path: Path) -> None:
    flow.save({"a": flow.ones(2)}, tmp_path / "x.npz")
    path = tmp_path / "x.npz"
    assert flow.load(path, global_src_rank=0)["a"].tolist() == [1.0, 1.0]
    on_sim = flow.load(path, "sim", global_src_rank=0)["a"]
    assert (on_sim.placement.type, on_sim.tolist()) == ("sim", [1.0, 1.0])
    with pytest.raises(ValueError, match="cannot be mapped into memory"):
        flow.load(path, mmap=True, global_src_rank=0)


def test_a_file_of_whole_tensors_is_written_by_one_rank_and_read_by_one(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"

    def program() -> None:
        model = _model(flow.placement.all("cpu"), (sbp.split(0),))
        with pytest.raises(ValueError, match=r"the object\['0.weight'\] is a global tensor; say by global_dst_rank="):
            flow.save(model.state_dict(), path)
        flow.save(model.state_dict(), path, global_dst_rank=1)
        dist.barrier().numpy()
        state = flow.load(path if dist.get_rank() == 2 else "nowhere", global_src_rank=2)
        assert all([tensor.is_global for tensor in state.values()])
        for other in (
            _model(flow.placement.all("cpu"), (sbp.broadcast,)),
            _model(flow.placement.all("cpu"), (sbp.split(0),)),
        ):
            with flow.no_grad():
                for tensor in other.parameters():
                    tensor.zero_()
            other.load_state_dict(state)
            for one, another in zip(other.parameters(), model.parameters(), strict=True):
                np.testing.assert_array_equal(one.detach().numpy(), another.detach().numpy())
        # Local tensors are whole, and the same on all ranks.
        other.load_state_dict(flow.load(path))
        np.testing.assert_array_equal(
            next(other.parameters()).detach().numpy(), next(model.parameters()).detach().numpy()
        )
        with pytest.raises(OSError, match=r"load: rank 0 could not read the file: .*missing\.npz"):
            flow.load(tmp_path / "missing.npz", global_src_rank=0)
        with pytest.raises(ValueError, match="there is no rank 7"):
            flow.save({}, path, global_dst_rank=7)

    dist.simulate(program, 3)
    assert flow.load(path)["0.weight"].shape == (7, 5)


def test_parts_are_loaded_onto_the_device_of_the_placement(tmp_path: Path) -> None:
    def program() -> list[Any]:
        cpu, sim = flow.placement.all("cpu"), flow.placement.all("sim")
        spread = flow.arange(4.0).to_global(cpu, sbp.broadcast).to_global(sbp=sbp.split(0))
        checkpoint.save({"global": spread, "local": flow.arange(3.0)}, tmp_path / "saved")
        state = {
            "global": flow.zeros(4, placement=sim, sbp=sbp.split(0)),
            "local": flow.zeros(3, placement=sim, sbp=sbp.split(0)),
        }
        checkpoint.load(state, tmp_path / "saved")
        return [tensor.numpy().tolist() for tensor in state.values()]

    assert dist.simulate(program, 2) == [[[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0]]] * 2


@pytest.mark.parametrize("key", ["x", -1, 2])
def test_keys_of_a_dict_that_was_saved_as_a_list_are_missing(tmp_path: Path, key: Any) -> None:
    checkpoint.save({"a": [1, 2]}, tmp_path / "saved")
    state = {"a": {key: 5}}
    with pytest.raises(KeyError, match="was not saved"):
        checkpoint.load(state, tmp_path / "saved")
    assert state == {"a": {key: 5}}


def test_a_file_in_place_of_the_folder_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    path.write_text("a file")
    with pytest.raises(NotADirectoryError, match="expected a folder"):
        checkpoint.save({"a": 1}, path)
    assert path.read_text() == "a file"
    assert os.listdir(tmp_path) == ["saved"]
