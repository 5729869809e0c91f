"""Problem: why a request is refused, with what to do about it, as application/problem+json says it (RFC 9457)."""

from __future__ import annotations

from ilb.serve.events import write_json


class ProblemError(Exception):
    """A request that is not carried out. `kind` names the problem for programs, `detail` says it to people."""

    def __init__(self, status: int, kind: str, detail: str, retry_after: int | None = None) -> None:
        self.status = status
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        super().__init__(detail)

    def text(self) -> str:
        """Write the body of the answer."""
        title = self.kind.replace("-", " ").capitalize()
        return write_json(
            {"type": f"/problems#{self.kind}", "title": title, "status": self.status, "detail": self.detail}
        )


def unknown_decision() -> ProblemError:
    return ProblemError(404, "unknown-decision", "No decision has this id. Give the decision_id of an answer.")


def unknown_person() -> ProblemError:
    return ProblemError(
        404, "unknown-person", "Nothing is known of this person. Ask for a first decision, or check it."
    )


def erased_decision() -> ProblemError:
    return ProblemError(410, "erased", "The person of this decision was erased; only counts are left.")


def erased_meanwhile() -> ProblemError:
    return ProblemError(
        410, "erased", "The person was erased while this was under way, so nothing was stored. Ask again to begin anew."
    )


def cannot_store(detail: str) -> ProblemError:
    return ProblemError(
        503, "cannot-store", f"Nothing can be stored now, so nothing was done: {detail} Try again.", retry_after=1
    )
