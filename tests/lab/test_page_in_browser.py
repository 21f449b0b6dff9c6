"""The page in a real browser: silent, offline, readable, and true to the results."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import synthetic_results as made

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from breakeven.lab.report import page, picture  # noqa: E402

CHROMIUM = picture.chromium()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH"),
]
STUDIES = {
    "three": made.results(),
    "one": made.results(made.full_subject()),
    "quick": made.results(made.quick_subject(), quick=True),
    "suite": made.suite(6),
}
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 375, "height": 812}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=list(picture.QUIET))
        yield opened
        opened.close()


@pytest.fixture(scope="module", params=STUDIES)
def study(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    target = tmp_path_factory.mktemp("page") / "report.html"
    page.write(STUDIES[request.param], target)
    return STUDIES[request.param], target


class Visit:
    """A page that was opened, every fold unfolded, every chart drawn, and what it said."""

    def __init__(self, browser: Any, target: Path, view: dict[str, int], scheme: str) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(viewport=view, color_scheme=scheme)
        self.tab = self.context.new_page()
        self.tab.on("console", self._console)
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(target.as_uri())
        self.tab.wait_for_function("typeof Plotly !== 'undefined'")
        self.tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        self.tab.wait_for_function("!document.querySelector('details[data-packed]')")
        self.tab.wait_for_function(DRAWN)
        self.tab.evaluate("document.fonts.ready")
        self.tab.evaluate(CONTRAST)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.said.append(message.text)

    def close(self) -> None:
        self.context.close()


# contrast of two colours, each [r, g, b] (WCAG 2.2)
CONTRAST = """() => {
  window.parts = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map(value => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  window.contrast = (one, other) => {
    const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
}"""
# scrolls to the first chart that is not drawn yet; true when all are
DRAWN = """() => {
  const left = [...document.querySelectorAll('.plot')].filter(plot => !plot.data);
  if (left.length) left[0].scrollIntoView({ behavior: 'instant' });
  return !left.length;
}"""


@pytest.fixture(scope="module", params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["wide", "narrow"])
def visit(browser: Any, study: Any, scheme: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    view = WIDE if request.param == "wide" else NARROW
    opened = Visit(browser, study[1], view, scheme)
    yield opened
    opened.close()


def test_it_says_nothing_and_asks_for_nothing(visit: Visit) -> None:
    assert visit.said == []
    elsewhere = [url for url in visit.asked if not url.startswith(("file:", "data:", "blob:"))]
    assert elsewhere == []
    assert len([url for url in visit.asked if url.startswith("file:")]) == 1


def test_nothing_scrolls_sideways_but_tables_and_code(visit: Visit) -> None:
    width = visit.tab.viewport_size["width"]
    assert visit.tab.evaluate("document.documentElement.scrollWidth") <= width
    beyond = visit.tab.evaluate(BEYOND, width)
    assert beyond == []


# what reaches past the right edge without a box around it that scrolls or clips
BEYOND = """(width) => {
  const inside = (node) => {
    for (let up = node.parentElement; up && up !== document.body; up = up.parentElement) {
      if (getComputedStyle(up).overflowX !== 'visible') return true;
    }
    return false;
  };
  return [...document.body.querySelectorAll('*')]
    .filter(node => !node.closest('svg') && node.getBoundingClientRect().right > width + 0.5)
    .filter(node => !inside(node))
    .map(node => node.outerHTML.slice(0, 120));
}"""


def test_charts_hold_the_numbers_of_the_results(visit: Visit, study: Any) -> None:
    held = visit.tab.evaluate(HELD)
    expected = page.figures(study[0])
    assert held.keys() == expected.keys()
    for key, chart in expected.items():
        traces = json.loads(json.dumps(chart.figure["data"]))
        assert len(held[key]) == len(traces)
        for found, trace in zip(held[key], traces, strict=True):
            for field in ("name", "type", "meta", "x", "y", "base", "text", "customdata"):
                assert found.get(field) == trace.get(field), (key, trace["name"], field)
            for bar in ("error_x", "error_y"):
                for side in ("array", "arrayminus"):
                    wanted = trace.get(bar, {}).get(side)
                    assert (found.get(bar) or {}).get(side) == wanted
        shown = chart.views[0].show if chart.views else range(len(traces))
        drawn = [number for number, trace in enumerate(held[key]) if trace.get("visible")]
        assert drawn == sorted(shown)


HELD = """() => Object.fromEntries([...document.querySelectorAll('.plot')].map(plot =>
  [plot.id, JSON.parse(JSON.stringify(plot.data))]))"""


def test_every_chart_is_as_wide_as_its_place(visit: Visit) -> None:
    for plot in visit.tab.query_selector_all(".plot"):
        place, drawn = plot.bounding_box(), plot.query_selector(".main-svg").bounding_box()
        assert abs(place["width"] - drawn["width"]) <= 1
        assert place["height"] >= 100


def test_the_first_screen_holds_verdict_code_and_table(browser: Any, study: Any) -> None:
    visit = Visit(browser, study[1], WIDE, "light")
    if len(study[0].subjects) == 1:
        for place in (".headline", ".snippet", ".cards tbody tr"):
            box = visit.tab.locator(place).first.bounding_box()
            assert box["y"] + min(box["height"], 60) <= WIDE["height"], place
    wide = "() => [...document.querySelectorAll('.cards')].map(b => b.scrollWidth - b.clientWidth)"
    assert max(visit.tab.evaluate(wide)) <= 0
    visit.close()


def test_rows_are_named_beside_their_marks_where_there_is_room(visit: Visit) -> None:
    """Names never lie on the plot of a wide page, and never leave a narrow one's picture."""
    assert visit.tab.evaluate(MISPLACED) == []


MISPLACED = """() => [...document.querySelectorAll('.plot')].flatMap(plot => {
  if (plot.layout.yaxis.showticklabels !== false) return [];
  const whole = plot.getBoundingClientRect();
  const start = whole.left + plot._fullLayout._size.l;
  const roomy = whole.width >= 760;
  return [...plot.querySelectorAll('.annotation-text')].filter(note => {
    const box = note.getBoundingClientRect();
    return box.left < whole.left - 1 || box.right > (roomy ? start : whole.right) + 1;
  }).map(note => `${plot.id}: ${note.textContent}`);
})"""


def test_bars_of_a_row_are_equally_high(visit: Visit) -> None:
    for key in visit.tab.evaluate("[...document.querySelectorAll('.plot')].map(p => p.id)"):
        heights = visit.tab.evaluate(BARS, key)
        assert max(heights, default=0) - min(heights, default=0) < 2


BARS = """(key) => [...document.getElementById(key).querySelectorAll('.barlayer .point path')]
  .map(bar => bar.getBBox().height).filter(height => height > 0)"""


def test_a_window_that_grows_gets_its_names_beside(browser: Any, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    page.write(STUDIES["one"], target)
    visit = Visit(browser, target, NARROW, "light")
    assert visit.tab.evaluate(LEFT) < 20
    visit.tab.set_viewport_size(WIDE)
    visit.tab.locator('#s0-speedups[data-roomy="true"]').wait_for()
    assert visit.tab.evaluate(LEFT) > 100
    assert visit.tab.evaluate(MISPLACED) == []
    visit.close()


LEFT = "() => document.getElementById('s0-speedups').layout.margin.l"


def test_text_is_readable(visit: Visit, scheme: str) -> None:
    paper = visit.tab.evaluate("getComputedStyle(document.body).backgroundColor")
    level = sum(int(part) for part in paper.strip("rgb()").split(","))
    assert level < 150 if scheme == "dark" else level > 600
    assert visit.tab.evaluate(FAINT) == []


# text whose contrast to what lies behind it is below 4.5, or 3 where it is large (WCAG 2.2, 1.4.3)
FAINT = """() => {
  const behind = (node) => {
    for (let up = node; up; up = up.parentElement) {
      const found = parts(getComputedStyle(up).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    const ink = getComputedStyle(node);
    const box = node.getBoundingClientRect();
    const bar = node.closest('.bars');
    if (!text.data.trim() || node.closest('script, style, noscript') || !box.width || bar) continue;
    const colour = parts(node.closest('svg') ? ink.fill : ink.color).slice(0, 3);
    const large = parseFloat(ink.fontSize) >= 24;
    const found = contrast(colour, behind(node));
    if (found < (large ? 3 : 4.5)) faint.push(`${found.toFixed(2)} ${text.data.trim()}`);
  }
  return [...new Set(faint)];
}"""


def test_phases_are_readable_on_their_bars(visit: Visit) -> None:
    """Text on a bar against the bar's own colour."""
    assert [one for one in visit.tab.evaluate(ON_BARS) if one[0] < 4.5] == []


ON_BARS = """() => {
  const found = [];
  for (const point of document.querySelectorAll('.barlayer .point')) {
    const [text, bar] = [point.querySelector('text'), point.querySelector('path')];
    if (!text || !text.textContent || getComputedStyle(bar).fill.includes('url')) continue;
    const colours = [text, bar].map(node => parts(getComputedStyle(node).fill).slice(0, 3));
    found.push([contrast(...colours), text.textContent]);
  }
  return found;
}"""


def test_controls_show_and_hide(browser: Any, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    page.write(STUDIES["one"], target)
    visit = Visit(browser, target, WIDE, "light")
    tab = visit.tab
    select = tab.locator("#s0-curves-view")
    labels = select.locator("option").all_text_contents()
    assert labels[0] == "machine-cold" and "disk-warm" in labels
    select.select_option(label="disk-warm")
    wanted = next(v.show for v in charts()["s0-curves"].views if v.label == "disk-warm")
    assert seen(tab, "s0-curves") == sorted(wanted)
    before = seen(tab, "s0-walk")
    button = tab.locator('.legend[data-chart="s0-walk"] button').first
    name = button.text_content()
    button.click()
    assert 0 < len(seen(tab, "s0-walk")) < len(before)
    hidden = tab.locator('.legend[data-chart="s0-walk"] button[aria-pressed="false"]')
    assert hidden.all_text_contents() == [name]
    hidden.click()
    assert seen(tab, "s0-walk") == before
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function("matchMedia('(prefers-color-scheme: dark)').matches")
    assert visit.said == []
    visit.close()


def charts() -> Any:
    return page.figures(STUDIES["one"])


def seen(tab: Any, key: str) -> list[int]:
    code = "key => document.getElementById(key).data.map(t => t.visible !== false)"
    return [number for number, visible in enumerate(tab.evaluate(code, key)) if visible]


def test_copying_gives_the_code(browser: Any, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    page.write(STUDIES["one"], target)
    visit = Visit(browser, target, WIDE, "light")
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.tab.locator('button[data-copy="s0-code"]').click()
    visit.tab.locator('button[data-copy="s0-code"]', has_text="Copied").wait_for()
    code = visit.tab.locator("#s0-code").text_content()
    assert visit.tab.evaluate("navigator.clipboard.readText()") == code
    visit.close()


def taken(target: Path, png: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "breakeven.lab.report.picture", str(target), str(png)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_picture_of_the_first_screen(tmp_path: Path) -> None:
    page.write(STUDIES["one"], tmp_path / "report.html")
    done = taken(tmp_path / "report.html", tmp_path / "one.png")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    data = (tmp_path / "one.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    size = [int.from_bytes(data[at : at + 4], "big") for at in (16, 20)]
    assert size == [picture.WIDTH, picture.HEIGHT]
    assert len(data) < 250_000


def test_a_picture_that_cannot_be_taken_is_told_in_three_sentences(tmp_path: Path) -> None:
    page.write(STUDIES["quick"], tmp_path / "report.html")
    (tmp_path / "file").write_text("")
    absent = taken(tmp_path / "absent.html", tmp_path / "one.png")
    assert absent.returncode == 2 and "There is no file" in absent.stderr
    blocked = taken(tmp_path / "report.html", tmp_path / "file" / "one.png")
    assert blocked.returncode == 3 and "folder of the picture" in blocked.stderr
    assert "Traceback" not in absent.stderr + blocked.stderr
