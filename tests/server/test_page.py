"""The page at ``/`` in a browser: the queue as it moves, files as they are dropped, and what goes wrong."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sooner.engines.whisper import WhisperEngine
from tests.browser import Browser, LivePage, find_chromium
from tests.conftest import DATA, HOSTILE
from tests.server.conftest import Running, Serve

pytestmark = pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium on this machine; CI has one")

KEY = "open-sesame-open-sesame"
ROWS = """[...document.querySelectorAll("#rows .row:not(.gone)")]
  .map(row => [row.querySelector("b").textContent, row.dataset.status])"""
CARDS = """[...document.querySelectorAll(".file")].map(card => card.innerText)"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
IS_STILL = 'document.getAnimations().every(one => one.playState !== "running")'

# The lowest contrast of text with what is painted behind it, by WCAG's formula: https://www.w3.org/TR/WCAG22/#contrast-minimum
CONTRAST = """(() => {
  const rgb = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => rgb(colour).slice(0, 3).map(one => one / 255)
    .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = element => {
    const colour = getComputedStyle(element).backgroundColor;
    return (rgb(colour)[3] ?? 1) > 0 ? colour : behind(element.parentElement);
  };
  return [...document.body.querySelectorAll("*")]
    .filter(one => one.checkVisibility() && one.closest("script") === null)
    .filter(one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
    .map(one => {
      const pair = [light(getComputedStyle(one).color), light(behind(one))].sort((a, b) => b - a);
      return [(pair[0] + 0.05) / (pair[1] + 0.05), one.textContent];
    })
    .sort((a, b) => a[0] - b[0])[0];
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


class Visitor:
    """Opens the page of a server; at the end nothing may have gone wrong in any that was opened."""

    def __init__(self, browser: Browser, stack: ExitStack) -> None:
        self._browser = browser
        self._stack = stack
        self._opened: list[tuple[LivePage, str, str]] = []

    def open(
        self, running: Running, *, width: int = 1000, dark: bool = False, known_error: str = "none"
    ) -> LivePage:
        """Open it. A console error that holds ``known_error`` is one that the browser itself writes."""
        page = self._stack.enter_context(self._browser.open(running.url + "/", width=width, dark=dark))
        self._opened.append((page, running.url, known_error))
        return page

    def check(self) -> None:
        for page, url, known_error in self._opened:
            assert [error for error in page.errors if known_error not in error] == []
            assert [asked for asked in page.requests if not asked.startswith(url)] == []


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    with ExitStack() as stack:
        made = Visitor(browser, stack)
        yield made
        made.check()


def waits_for(page: LivePage, rows: list[list[str]]) -> None:
    page.wait_for(f"JSON.stringify({ROWS}) === {json.dumps(json.dumps(rows, separators=(',', ':')))}")


def waits_for_card(page: LivePage, words: str, *, number: int = 0) -> None:
    page.wait_for(f"({CARDS}[{number}] ?? '').includes({json.dumps(words)})")


def shown(page: LivePage, waiting: list[dict[str, Any]], **more: Any) -> Any:
    """Have the page draw a queue that no server here has, and look at it before the next poll."""
    queue = {
        "policy": "sjf",
        "order": "sjf",
        "preempt": True,
        "num_workers": 2,
        "num_running": 0,
        "num_waiting": len(waiting),
        "num_arriving": 0,
        "backlog_s": 1.0,
        "running": [],
        "waiting": waiting,
        **more,
    }
    return page.evaluate(
        f"""(() => {{ queue = {json.dumps(queue)}; show(); return {{
          rows: document.querySelectorAll("#rows .row:not(.gone)").length,
          more: document.getElementById("more").innerText,
          images: document.images.length,
          text: document.body.innerText,
          moving: document.getAnimations().length,
          widths: [...document.querySelectorAll(".bar")].map(bar => bar.getBoundingClientRect().width),
        }}; }})()"""
    )


def job(number: int, *, audio_s: float = 3.0, **more: Any) -> dict[str, Any]:
    return {"id": f"job {number}", "audio_s": audio_s, "position": number + 1, "predicted_start_s": 1.0, **more}


def test_it_is_one_file_that_asks_nobody_else(serve: Serve) -> None:
    running = serve()
    reply = running.client.get("/")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/html")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert re.findall(r"""(?:src|href)=(?!["']?data:).*""", reply.text) == []
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", reply.text) == []


def test_the_queue_moves(visitor: Visitor, serve: Serve, silent_wav: Any) -> None:
    running = serve(gated=True, policy="sjf")
    page = visitor.open(running)
    page.wait_for('document.body.innerText.includes("Nothing waits, nothing runs.")')
    with ExitStack() as stack:
        stack.enter_context(running.send(silent_wav(95.0)))
        running.gate.wait_for_windows(1)
        stack.enter_context(running.send(silent_wav(40.0)))
        waits_for(page, [["1:35", "running"], ["40 s", "waiting"]])
        stack.enter_context(running.send(silent_wav(5.0)))
        waits_for(page, [["1:35", "running"], ["5.0 s", "waiting"], ["40 s", "waiting"]])
        running.gate.open(1)
        waits_for(page, [["5.0 s", "running"], ["40 s", "waiting"], ["1:35", "preempted"]])
        done = 'document.querySelector("[data-status=preempted] .bar i").style.width'
        assert float(page.evaluate(done).rstrip("%")) == pytest.approx(100 * 30 / 95, abs=0.1)
        running.gate.open()
        waits_for(page, [])
    page.wait_for('document.title.startsWith("0 running, 0 waiting")')
    page.wait_for('document.querySelectorAll(".row").length === 0')  # those that faded, too


def test_the_text_of_files(visitor: Visitor, serve: Serve, whisper: WhisperEngine) -> None:
    running = serve(whisper, num_workers=2)
    page = visitor.open(running)
    page.choose_files("#choose", [DATA / "jfk.mp3"])
    waits_for_card(page, "ask what you can do for your country")
    waits_for_card(page, "done: ")
    dropped = base64.b64encode((DATA / "weather.ogg").read_bytes()).decode()
    page.evaluate(
        f"""(() => {{
          const bytes = Uint8Array.from(atob("{dropped}"), one => one.charCodeAt(0)), data = new DataTransfer();
          data.items.add(new File([bytes], "weather.ogg"));
          dispatchEvent(new DragEvent("drop", {{ dataTransfer: data, cancelable: true }}));
        }})()"""
    )
    waits_for_card(page, "weather")
    waits_for_card(page, "done")
    assert page.evaluate("files.length") == 2
    text = running.post(DATA / "weather.ogg").json()["text"]
    assert page.evaluate('document.querySelector(".file .text").textContent') == text


def test_one_s_own_files_are_marked_and_can_be_cancelled(visitor: Visitor, serve: Serve, silent_wav: Any) -> None:
    running = serve(gated=True, policy="fcfs")
    page = visitor.open(running, known_error="409 (Conflict)")
    paths = [silent_wav(audio_s) for audio_s in (20.0, 31.0, 12.0, 13.0, 14.0, 15.0)]
    page.choose_files("#choose", paths)
    page.wait_for('document.querySelectorAll(".row.own").length === 4')
    waits_for_card(page, "comes after your other files")  # and the queue is asked for all the same
    running.gate.wait_for_windows(1)
    page.wait_for('document.querySelectorAll(".row.own[data-status=waiting]").length === 3')
    page.evaluate('document.querySelector(".row.own[data-status=waiting] button").click()')
    page.wait_for(f'{CARDS}.filter(card => card.includes("cancelled")).length === 1')
    assert running.wait_for_queue(lambda queue: queue["num_cancelled"] == 1)
    page.evaluate('[...document.querySelectorAll(".file button")][0].click()')  # the last, which is not sent yet
    waits_for_card(page, "cancelled")
    running.gate.open()
    page.wait_for(f'{CARDS}.filter(card => card.includes("done")).length === 4')
    page.evaluate('document.querySelector(".file button").click()')
    waits_for_card(page, "window 0 of 1")  # sent again
    waits_for(page, [])
    assert running.queue()["num_cancelled"] == 1


def test_errors_are_shown_in_their_own_words(visitor: Visitor, serve: Serve) -> None:
    running = serve()
    page = visitor.open(running, known_error="400 (Bad Request)")
    message = running.post(HOSTILE / "not_audio.wav").json()["error"]["message"]
    page.choose_files("#choose", [HOSTILE / "not_audio.wav"])
    waits_for_card(page, message)
    waits_for_card(page, "Send again")


def test_a_file_that_breaks_off_is_called_so(visitor: Visitor, serve: Serve) -> None:
    page = visitor.open(serve())
    page.choose_files("#choose", [HOSTILE / "jfk_truncated50pct.mp3"])
    waits_for_card(page, "breaks off")


def test_an_engine_that_fails_in_the_midst(visitor: Visitor, serve: Serve, silent_wav: Any) -> None:
    """An error within the stream, behind text that has come."""
    from sooner.engines.fake import FakeEngine

    def on_step(_job: object, index: int) -> None:
        if index == 1:
            raise RuntimeError("no more")

    page = visitor.open(serve(FakeEngine(on_step)))
    page.choose_files("#choose", [silent_wav(40.0)])
    waits_for_card(page, "the engine failed on this recording")
    waits_for_card(page, "window 0 of 2")


def test_a_key_is_asked_for(visitor: Visitor, serve: Serve, silent_wav: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY} ali\n")
    keys.chmod(0o600)
    page = visitor.open(serve(api_keys=keys), known_error="401 (Unauthorized)")
    page.wait_for("!document.getElementById('ask').hidden")
    page.choose_files("#choose", [silent_wav(2.0)])
    waits_for_card(page, "no valid API key")
    page.evaluate(
        f"""(() => {{
          document.getElementById("key").value = "{KEY}";
          document.getElementById("key").dispatchEvent(new Event("change"));
        }})()"""
    )
    page.wait_for("document.getElementById('state').textContent === 'serving'")
    page.evaluate('document.querySelector(".file button").click()')
    waits_for_card(page, "window 0 of 1")
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


def test_a_server_that_is_gone(visitor: Visitor, serve: Serve) -> None:
    running = serve()
    page = visitor.open(running, known_error="ERR_CONNECTION")
    page.wait_for("document.getElementById('state').textContent === 'serving'")
    running.stop()
    page.wait_for("document.getElementById('state').textContent.startsWith('The server cannot be reached')")
    page.wait_for("numFailures > 1")  # it is asked again
    assert page.evaluate("document.querySelector('.chart').classList.contains('stale')")


def test_a_hidden_page_asks_for_nothing(visitor: Visitor, serve: Serve) -> None:
    """Whatever could make it ask is a timer or a request on its way; both are counted."""
    page = visitor.open(serve())
    page.evaluate(
        """(() => {
          window.pending = new Set();
          const [set, clear, get] = [setTimeout, clearTimeout, fetch];
          window.setTimeout = (...given) => { const id = set(...given); pending.add(id); return id; };
          window.clearTimeout = id => { clear(id); pending.delete(id); };
          window.fetch = (...given) => {
            pending.add(given);
            return get(...given).finally(() => pending.delete(given));
          };
          window.hide = hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
          };
        })()"""
    )
    page.wait_for("pending.size > 0")
    page.evaluate("hide(true)")
    page.wait_for("pending.size === 0 && !isAsking")
    page.evaluate("hide(false)")
    page.wait_for("pending.size > 0")


def test_a_thousand_wait(visitor: Visitor, serve: Serve) -> None:
    page = visitor.open(serve(), width=360)
    seen = shown(page, [job(number, audio_s=3.0 if number else 4 * 3600.0) for number in range(1000)])
    assert (seen["rows"], seen["more"]) == (60, "and 940 more")
    assert seen["widths"][1] >= 2
    assert max(seen["widths"]) > 30 * seen["widths"][1]
    assert page.evaluate(OVERFLOW) == 0


def test_what_the_server_says_stays_text(visitor: Visitor, serve: Serve) -> None:
    page = visitor.open(serve())
    odd = '<img src="x" onerror="alert(1)">'
    switch = {"ago_s": 1.0, "before": odd, "after": odd, "reason": odd}
    seen = shown(page, [job(1) | {"id": odd, "priority": odd}], policy=odd, switches=[switch])
    assert seen["images"] == 0
    assert seen["text"].count(odd) == 4
    assert shown(page, [{"audio_s": 3.0}])["rows"] == 1, "a row with next to nothing in it"


def test_it_moves_only_where_motion_is_wanted(visitor: Visitor, serve: Serve) -> None:
    page = visitor.open(serve())
    for still in (False, True):
        page.look(width=1000, still=still)
        shown(page, [job(1), job(2)])
        page.wait_for(IS_STILL)
        assert (shown(page, [job(2), job(1)])["moving"] > 0) is not still


def test_keys_and_mouse_tell_more(visitor: Visitor, serve: Serve, silent_wav: Any) -> None:
    running = serve(gated=True, policy="fcfs")
    page = visitor.open(running)
    with ExitStack() as stack:
        for audio_s in (20.0, 10.0):
            stack.enter_context(running.send(silent_wav(audio_s)))
            page.wait_for(f"{ROWS}.some(row => row[0] === '{audio_s:.0f} s')")
        waits_for(page, [["20 s", "running"], ["10 s", "waiting"]])
        first, second = (row["id"] for row in (*running.queue()["running"], *running.queue()["waiting"]))
        page.evaluate("document.querySelector('.row[tabindex=\"0\"]').focus()")
        detail = "(document.getElementById('detail').hidden ? '' : document.getElementById('detail').innerText)"
        assert first in page.evaluate(detail)
        page.press("ArrowDown")
        assert second in page.evaluate(detail)
        assert "starts" in page.evaluate(detail)
        page.wait_for(IS_STILL)
        box = page.evaluate("document.querySelector('.row').getBoundingClientRect().toJSON()")
        page.move_mouse(box["left"] + 9, box["top"] + 9)
        page.wait_for(f"{detail}.includes('{first}')")
        running.gate.open()


@pytest.mark.parametrize("is_dark", [False, True])
def test_its_looks(visitor: Visitor, serve: Serve, silent_wav: Any, is_dark: bool) -> None:
    running = serve(gated=True, policy="adaptive")
    page = visitor.open(running, dark=is_dark)
    page.choose_files("#choose", [silent_wav(100.0), silent_wav(7.0).rename(silent_wav(1.0).with_name("x" * 90))])
    page.wait_for('document.querySelectorAll(".row.own").length === 2')
    page.evaluate("document.querySelector('.row[data-status=waiting]').focus()")
    for width in (360, 768, 1400):
        page.look(width=width, dark=is_dark)
        page.wait_for(IS_STILL)
        assert page.evaluate(OVERFLOW) == 0
        lowest, text = page.evaluate(CONTRAST)
        assert lowest >= 4.5, text
    running.gate.open()
    page.wait_for(f'{CARDS}.filter(card => card.includes("done")).length === 2')
