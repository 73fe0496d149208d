"""A real server, and requests that make no sense; `tests.benchmarks.serving_fuzz` sends many more of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

pytest.importorskip("starlette", reason="starlette comes with the serve extra")
pytest.importorskip("uvicorn", reason="uvicorn comes with the serve extra")

from tests.serving import hostile
from tests.serving.fuzzing import GOOD, Tally, counts, described_requests, fired
from tests.serving.processes import Server, served, until

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of three sessions: of one input, of several by name, and of one large input."""
    with served(tmp_path_factory.mktemp("fuzz"), "hostile") as made:
        until(lambda: made.ready(hostile.WIDE + "/ready"), "ready")
        yield made


def _survives(server: Server, requests: list[hostile.Hostile]) -> Tally:
    """Every answer is well-formed, the counts add up, and a valid request is served after each."""
    tally, before = Tally(), counts(server)
    asyncio.run(fired(server.port, [*requests, GOOD], tally))
    assert tally.wrong + tally.differs(counts(server), before) == []
    return tally


@pytest.mark.slow
def test_requests_that_make_no_sense(server: Server) -> None:
    requests = hostile.drawn(hostile.requests(), 300, 0) + hostile.drawn(hostile.large_requests(), 10, 0)
    tally = _survives(server, requests)
    # All kinds of them have come through, else this would say nothing.
    assert {0, 200, 400, 406, 413, 415, 422} <= tally.statuses.keys()
    assert {"json", "x-npy", "x-safetensors", "mutated", "stops", "lies", "large"} <= tally.families.keys()


@pytest.mark.slow
def test_requests_made_from_the_description(server: Server) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis comes with the dev extra")
    tally = _survives(server, hostile.drawn(described_requests(server), 50, 0))
    assert {200, 400, 422} <= tally.statuses.keys()


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("path", ["/predict", "/stream"])
def test_the_description_is_true(path: str, fits: bool, server: Server) -> None:
    """Requests that the description permits are accepted, others refused, and answers match it."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis comes with the dev extra")
    where = f"http://127.0.0.1:{server.port}{hostile.ONE}"
    mode = schemathesis.GenerationMode.POSITIVE if fits else schemathesis.GenerationMode.NEGATIVE
    cases = schemathesis.openapi.from_url(where + "/openapi.json")[path]["POST"].as_strategy(generation_mode=mode)
    seen = []

    @seed(0)
    @settings(
        max_examples=25, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(cases)
    def search(case: Any) -> None:
        seen.append(case.call_and_validate(base_url=where).status_code)

    search()
    assert (200 in seen) == fits
