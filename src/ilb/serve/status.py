"""How the service is: findings with a severity, a cause and a remedy, as the table of failures in the guide has them.

Green: all is well. Yellow: it goes on, and someone should look within days. Red: decisions come from the fallback, or
nothing can be stored; someone must look now.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from ilb.serve.engine import NO_MODEL
from ilb.serve.events import Kind, written
from ilb.serve.operations import parsed
from ilb.serve.service import Service
from ilb.serve.store.store import StoreUnavailableError

LEVELS = ("green", "yellow", "red")
WORDS = {"green": "ok", "yellow": "degraded", "red": "failing"}

RECENT = 200
"""The last decisions that are looked at for fallbacks."""

BEHIND = 5.0
"""Seconds by which the clock may be behind the newest event before it is said to have been set back."""

WAITING = 500
"""Operations that wait when the server is called overrun."""


class Finding(NamedTuple):
    """Something that is not as it should be."""

    severity: str
    cause: str
    remedy: str


def severity_of(findings: list[Finding]) -> str:
    """The worst of all."""
    return max((finding.severity for finding in findings), key=LEVELS.index, default="green")


class Health:
    """Looks at a service; what was seen less than a second ago is not looked at again."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._began = time.monotonic()
        self._seen: tuple[float, list[Finding]] | None = None

    def findings(self) -> list[Finding]:
        """Give all that is wrong, the worst first."""
        if self._seen is not None and time.monotonic() < self._seen[0] + 1:
            return self._seen[1]
        found = [*self._of_store(), *self._of_model(), *self._of_queue(), *self._of_erasures()]
        found.sort(key=lambda finding: -LEVELS.index(finding.severity))
        self._seen = (time.monotonic(), found)
        return found

    def report(self) -> dict[str, Any]:
        """Give the whole status."""
        findings, service = self.findings(), self._service
        severity = severity_of(findings)
        try:
            counts = service.store.counts()
        except StoreUnavailableError:
            counts = {}
        served = service.engine.served
        return {
            "status": WORDS[severity],
            "severity": severity,
            "findings": [finding._asdict() for finding in findings],
            "model": None if served is None else served.fingerprint,
            "policy": None if served is None else served.policy,
            "fallback": "uniform" if service.declared is None else service.declared,
            "counts": counts,
            "agreement": agreement_of(counts),
            "failures": dict(service.last_failure),
            "uptime_seconds": round(time.monotonic() - self._began, 1),
        }

    def _of_store(self) -> list[Finding]:
        try:
            self._service.store.check()
            newest = self._service.store.newest(1)
        except StoreUnavailableError as error:
            return [
                Finding(
                    "red",
                    f"nothing can be stored: {error}",
                    "Free space on the disk, or start the database; requests are answered with 503 until then, and "
                    "bundled clients decide by the fallback and deliver later.",
                )
            ]
        now = self._service.clock()
        behind = (parsed(newest[0].at) - now).total_seconds() if newest else 0.0
        if behind > BEHIND:
            return [
                Finding(
                    "yellow",
                    f"the clock is {behind:.0f} s behind the newest event, of {newest[0].at}; it is {written(now)}",
                    "Set the clock. The order of events is that of the log, whatever the clock says; times of outcomes "
                    "in between are wrong.",
                )
            ]
        return []

    def _of_model(self) -> list[Finding]:
        if self._service.engine.served is None:
            return [Finding("red", NO_MODEL.cause, "Give a readable model to `ilb serve`, or stage and promote one.")]
        try:
            recent = self._service.store.newest(RECENT, [Kind.DECISION])
        except StoreUnavailableError:
            return []
        fallbacks = [event.body["answer"]["fallback"] for event in recent]
        failed = [one for one in fallbacks if one is not None and one["cause"] != "erased"]
        if not failed:
            return []
        worst = max((one["severity"] for one in failed), key=LEVELS.index)
        return [
            Finding(
                worst if fallbacks[0] is not None else "yellow",
                f"{len(failed)} of the last {len(recent)} decisions came from the fallback: {failed[0]['cause']}",
                "They are in the log with their true propensity. If it was the deadline, look at the load of the "
                "machine; if the model failed, look at the model, or promote another.",
            )
        ]

    def _of_queue(self) -> list[Finding]:
        waiting = self._service.waiting
        if waiting <= WAITING:
            return []
        return [Finding("yellow", f"{waiting} requests wait", "Slow the clients down, or use a larger machine.")]

    def _of_erasures(self) -> list[Finding]:
        if not self._service.scrubber.is_late:
            return []
        return [
            Finding(
                "yellow",
                "files of the store still hold what was erased, because somebody reads them",
                "End what reads the store for long: a copy, an export, another program. What was erased is overwritten "
                "then, without anything being done.",
            )
        ]


def agreement_of(counts: dict[str, int]) -> dict[str, Any]:
    """How often the model would have done what was done, by mode."""
    modes = ("shadow", "apprentice")
    compared = {mode: counts.get(f"compared:{mode}", 0) for mode in modes}
    return {
        mode: {"compared": number, "rate": round(counts.get(f"agreed:{mode}", 0) / number, 4)}
        for mode, number in compared.items()
        if number
    }
