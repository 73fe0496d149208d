"""The page, in a browser: draw, see the prediction, and watch the counts move."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .processes import serving, until

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser")
chains = pytest.importorskip("selenium.webdriver.common.action_chains")

pytestmark = [pytest.mark.host, pytest.mark.slow]


@pytest.fixture
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in ("--headless=new", "--no-sandbox", "--window-size=900,1100", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    yield driver
    driver.quit()


def text(browser: Any, place: str) -> str:
    """The text of the page."""
    found: str = browser.find_element("css selector", place).text
    return found


def shown_count(browser: Any, name: str) -> int:
    """A count in the table."""
    found = [line.removeprefix(f"{name} ") for line in text(browser, "#all").split("\n") if line.startswith(f"{name} ")]
    return int(found[0]) if found else -1


def draw(browser: Any, *points: tuple[int, int]) -> None:
    """A line on the pad, by places from its middle."""
    pad = browser.find_element("id", "pad")
    line = chains.ActionChains(browser, duration=20).move_to_element_with_offset(pad, *points[0]).click_and_hold()
    for point in points[1:]:
        line = line.move_to_element_with_offset(pad, *point)
    line.release().perform()


def test_drawing_a_digit(folder: Path, logs: Path, browser: Any) -> None:
    pytest.importorskip("safetensors", reason="safetensors comes with the io extra")
    pytest.importorskip("uvicorn", reason="uvicorn comes with the serve extra")
    with serving(logs, ["-m", "vmflow", "serve", str(folder), "--port", "0"], {}) as server:
        until(server.ready, "ready")
        browser.get(f"http://127.0.0.1:{server.port}/")
        until(lambda: "ready" in text(browser, "#state"), "the state is shown")
        assert "digits" in text(browser, "h1")
        draw(browser, (0, -80), (0, 0), (0, 80))
        until(lambda: text(browser, "#said").endswith("ms"), "there is an answer")
        shown = text(browser, "#bars").split("\n")
        assert sum(["%" in line for line in shown]) == 10
        assert len(browser.find_elements("css selector", "#bars .best")) == 1
        assert server.json("/stats")["done"] >= 1
        until(lambda: shown_count(browser, "done") == server.json("/stats")["done"], "the counts have followed")
        browser.find_element("id", "clear").click()
        assert text(browser, "#said") == ""
        assert not [value for value in browser.get_log("browser") if value["level"] == "SEVERE"]
        server.told()
        server.ended()
        until(lambda: "no answer" in text(browser, "#state"), "the page says that nobody answers")
