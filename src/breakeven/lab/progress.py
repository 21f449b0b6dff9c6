"""The progress of a study: cell, compiler, part and time left, drawn between timed blocks only."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from breakeven.lab.records import Outcome


class Silent:
    """Shows nothing."""

    def cell(self, text: str, done: int, planned: int, seconds_left: float) -> None:
        """See `study.Progress`."""

    def stage(self, name: str) -> None:
        """See `study.Progress`."""

    def ended(self, outcome: Outcome) -> None:
        """See `study.Progress`."""


class Terminal:
    """One line that is redrawn when something happens, never on a timer; failures stay above it.

    Where the console is no terminal, one plain line a cell.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._text, self._part = "", ""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def cell(self, text: str, done: int, planned: int, seconds_left: float) -> None:
        """A cell begins."""
        left = f"{seconds_left // 60:.0f}:{seconds_left % 60:02.0f} left"
        count = f"{done + 1}/{planned} " if planned else ""
        self._text, self._part = f"{count}{text} · {left}", ""
        self._draw()

    def stage(self, name: str) -> None:
        """The cell enters a part."""
        self._part = name
        if self._console.is_terminal:
            self._draw()

    def ended(self, outcome: Outcome) -> None:
        """The cell has ended."""
        if outcome.outcome != "ok":
            self._console.print(
                Text(f"{outcome.key}: {outcome.outcome}: {outcome.detail}", style="yellow")
            )

    def _draw(self) -> None:
        if self._console.is_terminal:
            part = f" · {self._part}" if self._part else ""
            self._live.update(Text(self._text + part, style="dim"), refresh=True)
        else:
            self._console.print(self._text, highlight=False, soft_wrap=True)
