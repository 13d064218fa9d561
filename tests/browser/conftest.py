"""A real browser, from the system's packages, that notes every complaint and every request of the network."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Reader:
    """Somebody who opens pages: storage of their own, in the browser that all share."""

    def __init__(self, context) -> None:
        self._context = context
        self.complaints: list[str] = []
        self.sent: list[str] = []

    def open(self, path: Path):
        """The page of a file."""
        page = self._context.new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:", "blob:")) or self.sent.append(request.url))
        self.go(page, path)
        return page

    @classmethod
    def go(cls, page, path: Path | None = None) -> None:
        """Load a file, or the same one again, and wait until it is drawn: a page to label on waits for an answer first."""
        page.goto(path.as_uri()) if path else page.reload()
        cls.until(page, "!document.querySelector('#name:empty')")

    @staticmethod
    def until(page, expression: str, seconds: float = 10) -> None:
        """Wait until a JavaScript expression is true. The driver's own way needs eval, which the pages forbid."""
        end = time.monotonic() + seconds
        while not page.evaluate(expression):
            assert time.monotonic() < end, expression
            page.wait_for_timeout(20)

    @staticmethod
    def download(page, path: Path, button: str = "#download") -> str:
        """Click a button and save what comes of it; the name that was suggested for it."""
        with page.expect_download() as waiting:
            page.click(button)
        waiting.value.save_as(path)
        return waiting.value.suggested_filename

    @staticmethod
    def screens(page) -> Iterator[str]:
        """The page on a wide screen in light colours, then on a narrow one in dark colours; on neither anything sticks out."""
        for width, scheme in ((1400, "light"), (390, "dark")):
            page.set_viewport_size({"width": width, "height": 844})
            page.emulate_media(color_scheme=scheme)
            yield scheme
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """The browser; the tests are skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with api.sync_playwright() as playwright, playwright.chromium.launch(executable_path=program, args=ARGUMENTS) as running:
        yield running


@pytest.fixture
def reader(browser) -> Iterator[Reader]:
    """Somebody who opens pages. Nothing may have been complained of at the end, nor asked of the network."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        yield (somebody := Reader(context))
    assert not somebody.complaints and not somebody.sent


@pytest.fixture(scope="session")
def accessible():
    """A function that says what axe-core finds wrong with a page by WCAG 2.2 AA and best practice: [(rule, element)]."""
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed: pip install '.[dev]'")
    source = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")

    def check(page) -> list[tuple[str, str]]:
        page.evaluate(source)
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = page.evaluate("tags => axe.run({runOnly: {type: 'tag', values: tags}})", tags)
        return [(rule["id"], node["html"][:120]) for rule in found["violations"] for node in rule["nodes"]]

    return check
