"""A picture of the first screen of a page: `python -m breakeven.lab.report.picture PAGE PNG`.

It needs playwright and a Chromium of the system.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from breakeven.errors import BreakevenError, StoreError, UsageError

try:
    from playwright.sync_api import Error, sync_playwright
except ImportError:
    sys.stderr.write(
        "A picture is taken through the package playwright. It is not installed here. "
        "Install it with: pip install 'breakeven[test]'.\n"
    )
    raise SystemExit(3) from None

WIDTH, HEIGHT = 1280, 900
BROWSERS = ("chromium", "chromium-browser")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Options under which Chromium asks the network for nothing of its own."""


def chromium() -> str | None:
    """The Chromium of this system; None where there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def take(
    page: Path, png: Path, width: int = WIDTH, height: int = HEIGHT, scheme: str = "light"
) -> None:
    """Write the first `width` x `height` CSS pixels of the HTML file `page` to `png`.

    Raises:
        UsageError: there is no such page.
        StoreError: there is no Chromium, or it could not open the page or write the picture.
    """
    if not page.is_file():
        raise UsageError(
            "A picture is taken of a page that a study has written.",
            f"There is no file {page}.",
            "Run a study first, or name the report.html in its folder.",
        )
    browser = chromium()
    if browser is None:
        raise StoreError(
            "A picture is taken with the Chromium of this system.",
            f"None of {', '.join(BROWSERS)} is on the PATH.",
            "Install it, on Debian with: apt-get install chromium.",
        )
    try:
        with sync_playwright() as play:
            opened = play.chromium.launch(executable_path=browser, args=list(QUIET))
            view = {"width": width, "height": height}
            tab = opened.new_page(viewport=view, color_scheme=scheme)  # type: ignore[arg-type]
            tab.goto(page.resolve().as_uri())
            tab.wait_for_timeout(500)  # charts are drawn when they come into view
            tab.screenshot(path=str(png))
            opened.close()
    except (Error, OSError) as error:
        raise StoreError(
            "A picture is taken of a page that Chromium can open.",
            f"With {page} and {png} it said: {str(error).splitlines()[0]}",
            "Open the page in a browser to see what is wrong, and check that the folder of the "
            "picture can be written.",
        ) from error


def main() -> None:
    """Entry of the command; a failure ends in three sentences and an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("page", type=Path, metavar="PAGE")
    parser.add_argument("png", type=Path, metavar="PNG")
    given = parser.parse_args()
    try:
        take(given.page, given.png)
    except BreakevenError as error:
        parser.exit(error.exit_code, f"{error}\n")


if __name__ == "__main__":
    main()
