"""The four ways to train have the same losses, and spread the tensors as documented."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples.test_sequence_examples import imported

pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore::vmflow.errors.BroadcastWarning")]


def test_global_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    with imported("global_tensors") as example:
        found = example.main(4, 5, 0)
    alone = found["one rank"][0].losses
    for outcomes in found.values():
        for each in outcomes:
            np.testing.assert_allclose(each.losses, alone, rtol=1e-5)
    assert found["data parallel"][1].parts["data"] == (6, 20)
    assert found["tensor parallel"][1].parts["fc1.weight"] == (8, 20)
    assert found["both"][1].parts["data"] == (12, 20)
    assert found["both"][1].parts["fc2.weight"] == (5, 16)
    assert found["one rank"][0].boxing.total() == 0
    assert found["tensor parallel"][0].boxing.total() == 720  # one sum of the scores
    assert "P -> B of [32, 20]" in capsys.readouterr().out
