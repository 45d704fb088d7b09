"""Chromium for the tests of the console: pages that fail the test on any error in the browser, and
checks of accessibility."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from logboom.console.server import ConsoleServer

CHROMIUM: Final = "/usr/bin/chromium"
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
)
AXE: Final = Path(__file__).parents[2] / "data/browser/axe.min.js"
WIDTHS: Final = (320, 768, 1280, 1440)
WIDE_PX: Final = 768
"""From here on the buttons of a table's rows are always in sight."""
RULES: Final = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']"
OUTSIDE: Final = """() => [...document.querySelectorAll("td > *, th > *")].filter(each =>
    each.getClientRects().length
    && each.getBoundingClientRect().right > each.parentElement.getBoundingClientRect().right + 1
).map(each => each.parentElement.innerText)"""
"""Script: the texts of cells with something that stands over the next cell."""
CUT_OFF: Final = """() => [...document.querySelectorAll(".row-actions .button")].filter(each => {
    const own = each.getBoundingClientRect(), part = each.closest(".table-scroll").getBoundingClientRect();
    return own.left < part.left - 1 || own.right > part.right + 1;
}).map(each => each.innerText)"""
"""Script: the buttons of rows that one sees only after one has scrolled."""
CONTRAST: Final = "['color-contrast']"
PATIENCE_MS: Final = 200_000
"""How long a page may take on a machine that does other work."""


def need_chromium() -> str:
    """Return the path of Chromium; skip the test where there is none, except in CI."""
    found = CHROMIUM if Path(CHROMIUM).exists() else shutil.which("chromium")
    if found is None:
        assert not os.environ.get("CI"), "CI needs Chromium: sudo apt-get install chromium"
        pytest.skip("Chromium is not installed: sudo apt-get install chromium")
    return found


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start Chromium."""
    path = need_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=list(ARGUMENTS), timeout=PATIENCE_MS
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Surfer:
    """One tab of one browser profile, and what went wrong in it."""

    page: Any
    """Playwright's page."""
    url: str
    """Of the console, without a slash at its end."""
    troubles: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    """Parts of messages that the test expects, such as the status of an error page."""

    def open(self, path: str) -> None:
        """Open a page of the console, and wait until its scripts have run."""
        self.page.goto(self.url + path)

    def see_question(self) -> None:
        """Wait for the question of an action. A click may return while the page before is still shown,
        which may have a command too."""
        self.page.locator(".question").wait_for()
        self.page.wait_for_load_state()

    def see_answer(self, told: str) -> None:
        """Wait for the message of an action: its question is gone, which may hold the same words."""
        self.page.locator(".question").wait_for(state="detached")
        self.page.get_by_text(told).first.wait_for()
        self.page.wait_for_load_state()

    def note(self, text: str) -> None:
        """Keep an error of the browser."""
        self.troubles.append(text)

    def check(self) -> None:
        """Fail on any error, and on any request to another host, so far."""
        found = [text for text in self.troubles if not any(part in text for part in self.allowed)]
        assert found == []

    def check_accessible(self, rules: str = RULES) -> None:
        """Fail on serious findings of axe-core in the page that is shown."""
        # Not as a script element, which the page's own policy would refuse.
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        result = self.page.evaluate(f"() => axe.run(document, {{runOnly: {rules}}})")
        found = [
            f"{each['id']}: {each['help']}: {each['nodes'][0]['html']}"
            for each in result["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert found == []

    def check_widths(self) -> None:
        """Fail if the page shown is wider than the screen, or a part than its cell, at any width."""
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            wide = self.page.evaluate(
                "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wide <= 0, f"{self.page.url} is {wide} px too wide at {width} px"
            assert self.page.evaluate(OUTSIDE) == [], f"{self.page.url} at {width} px"
            if width >= WIDE_PX:
                assert self.page.evaluate(CUT_OFF) == [], f"{self.page.url} at {width} px"
        self.page.set_viewport_size({"width": 1440, "height": 900})

    def check_page(self, path: str) -> None:
        """Open a page and check all of it: errors, accessibility in both themes, widths."""
        self.open(path)
        self.check_accessible()
        self.page.emulate_media(color_scheme="dark")
        self.check_accessible(CONTRAST)
        self.page.emulate_media(color_scheme="light")
        self.check_widths()
        self.check()


@contextmanager
def open_surfer(browser: Any, console: ConsoleServer, **options: Any) -> Iterator[Surfer]:
    """Open a tab with a profile of its own; what goes wrong in it fails the test at the end."""
    # Colours that are still on their way to the other theme would have too little contrast.
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, reduced_motion="reduce", **options
    )
    context.set_default_timeout(PATIENCE_MS)
    surfer = Surfer(context.new_page(), console.url.rstrip("/"))
    own = urlsplit(console.url).netloc

    def requested(request: Any) -> None:
        if urlsplit(request.url).scheme in ("data", "blob", "about"):
            return
        if urlsplit(request.url).netloc != own:
            surfer.note(f"a request to {request.url}")

    def logged(message: Any) -> None:
        if message.type in ("error", "warning"):
            surfer.note(f"{message.type}: {message.text} {message.location.get('url', '')}")

    surfer.page.on("request", requested)
    surfer.page.on("console", logged)
    surfer.page.on("pageerror", lambda error: surfer.note(f"script: {error}"))
    try:
        yield surfer
        surfer.check()
    finally:
        context.close()
