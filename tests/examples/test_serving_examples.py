"""The answers of the served examples."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

import vmflow as flow
from tests.examples.test_sequence_examples import imported
from vmflow import serving

pytestmark = [pytest.mark.host, pytest.mark.slow]


async def test_digits_are_served_on_a_page_to_draw_on(tmp_path: Path) -> None:
    for needed in ("sklearn", "tqdm", "starlette", "httpx", "safetensors"):
        pytest.importorskip(needed, reason="comes with the extras examples and test")
    import httpx

    with imported("digits") as example:
        await example.save_for_serving(example.build(), tmp_path / "graph")
    session = serving.InferenceSession(tmp_path / "graph")
    assert session.batch_sizes == (1, 2, 4, 8, 16, 32)
    async with session, _client(serving.app(session), httpx) as client:
        answer = await client.post("/predict", json={"inputs": [[[0.5] * 8] * 8]})
        assert sum(answer.json()["outputs"]) == pytest.approx(1, abs=1e-5)
        assert "<canvas" in (await client.get("/")).text


def test_what_serving_needs_is_looked_for_before_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for needed in ("sklearn", "tqdm"):
        pytest.importorskip(needed, reason="comes with the extra examples")
    with imported("digits") as example:
        monkeypatch.setattr(example, "find_spec", lambda name: None if name in ("starlette", "uvicorn") else name)
        with pytest.raises(SystemExit) as stop:
            example.parse(["--serve"])
        assert stop.value.code == 2
        assert "--serve needs starlette, uvicorn; install it with: pip install" in capsys.readouterr().err
        assert example.parse([]).serve is None
        monkeypatch.setattr(example, "find_spec", lambda name: name)
        assert example.parse(["--serve", "8001"]).serve == 8001


def _client(application: Any, httpx: Any) -> Any:
    return httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test")


async def test_tokens_are_streamed(capsys: pytest.CaptureFixture[str]) -> None:
    with imported("stream_tokens") as example:
        model, written = await example.main(150, 0, "Tokens ")
        assert written + "\n" == example.TEXT
        assert example.TEXT in capsys.readouterr().out
        session = example.session_of(model)
        async with session:
            prompt = [ord(letter) for letter in "Tokens"]
            scores = await session.run(prompt)
            assert scores.shape == (6, example.CODES)
            assert chr(scores[-1].argmax()) == " "
            async with contextlib.aclosing(session.stream(prompt)) as stream:
                assert [await anext(stream) for _ in range(4)] == list(" com")
        assert session.statistics.ends["cancelled"] == 1  # the rest was not computed


async def test_tokens_are_events_over_http() -> None:
    pytest.importorskip("starlette", reason="starlette comes with the serve extra")
    httpx = pytest.importorskip("httpx", reason="httpx comes with the test extra")
    with imported("stream_tokens") as example:
        flow.manual_seed(0)
        model = example.Writer(8)
        session = example.session_of(model)
        async with session, _client(serving.app(session), httpx) as client:
            wanted = [token async for token in session.stream([84])]
            answer = await client.post("/stream", json={"inputs": [84]})
            events = [event.removeprefix("data: ") for event in answer.text.strip().split("\n\n")]
            assert [json.loads(data) for data in events[:-1]] == wanted
            assert events[-1] == "event: end\ndata: {}"
            answer = await client.post("/stream", json={"inputs": [256]})
            assert answer.status_code == 422


async def test_fastapi() -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed; no extra brings it")
    httpx = pytest.importorskip("httpx", reason="httpx comes with the test extra")
    with imported("fastapi_app") as example:
        async with example.app.router.lifespan_context(example.app), _client(example.app, httpx) as client:
            while not (await client.get("/ready")).json()["ready"]:
                pass
            samples = [[1.0, 2.0, 3.0, place] for place in range(20)]
            answer = await client.post("/classify", json=samples)
            assert answer.status_code == 200
            with flow.no_grad():
                wanted = (await example.model(flow.tensor(samples))).tolist()
            assert answer.json() == [pytest.approx(value, abs=1e-5) for value in wanted]
            assert example.session.statistics.batches.batches < 20
            answer = await client.post("/classify", json=[[1.0]])
            assert (answer.status_code, answer.json()["title"]) == (422, "InvalidInput")
            answer = await client.post("/classify", json=samples, headers={"X-Request-Timeout": "0.0000001"})
            assert answer.status_code == 504
