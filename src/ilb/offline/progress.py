"""Progress of a fit: that of the search, whose length is a guess, and that of the training after it."""

from __future__ import annotations

from ilb.types import Report

WHOLE, SEARCHING = 1000, 800
"""Units of progress of a fit, and those before the last training."""


def first_part(report: Report) -> Report:
    """Give the search its part of the progress of a fit."""
    return lambda done, total, value: report(round(SEARCHING * done / max(total, 1)), WHOLE, value)


def last_part(report: Report) -> Report:
    """Give the training after the search the rest."""
    rest = WHOLE - SEARCHING
    return lambda done, total, value: report(SEARCHING + round(rest * done / max(total, 1)), WHOLE, value)


class Steps:
    """Progress of a search, in units of a try; parts that turn out not to be needed are skipped at the end."""

    def __init__(self, report: Report, total: int) -> None:
        self._report, self._total, self._done = report, total, 0
        self._value = float("nan")

    def advance(self, units: int, value: float | None = None) -> None:
        self._value = self._value if value is None else value
        self._done = min(self._done + units, self._total - 1)
        self._report(self._done, self._total, self._value)

    def within(self, units: int) -> Report:
        """Give what a training is to call, whose own steps are worth so many units here; they are added at its end."""

        def report(done: int, total: int, value: float) -> None:
            del value
            part = min(round(units * done / max(total, 1)), units)
            self._report(min(self._done + part, self._total - 1), self._total, self._value)

        return report

    def finish(self) -> None:
        self._report(self._total, self._total, self._value)
