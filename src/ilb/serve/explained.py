"""What each kind of problem means and what to do about it: the page that the `type` of a problem points to."""

from __future__ import annotations

from typing import NamedTuple


class Explained(NamedTuple):
    """A kind of problem: with which status it comes, what it means, and what helps."""

    status: str
    meaning: str
    remedy: str


EXPLAINED: dict[str, Explained] = {
    "cannot-store": Explained(
        "503",
        "Nothing can be stored now: the disk is full or failed, the database is away, or the server is stopping. "
        "Nothing was done.",
        "Send the same request again, with the same idempotency key. The bundled client does so by itself. "
        "Whoever runs the server finds the cause in /v1/status.",
    ),
    "context": Explained(
        "422",
        "The model can't read the context: a column is missing that it needs, or holds what it can't take.",
        "Send all columns that /v1/model lists, and null for what was not measured.",
    ),
    "contradiction": Explained(
        "409",
        "Another outcome of this decision is stored.",
        "If the stored one is wrong, correct it: PUT the new one with `supersedes`, the `event` of the old one.",
    ),
    "erased": Explained(
        "410",
        "The person was erased, before or while this was under way. Only counts are left; nothing was stored.",
        "Nothing, if that was meant. Who comes back begins anew with a new decision.",
    ),
    "foreign-page": Explained(
        "403",
        "A page of another site asked, and without keys such pages may change nothing here.",
        "Make a key with `ilb key` and start the server with --keys.",
    ),
    "form": Explained("400", "A form of the page can't be read.", "Go back, and fill it in again."),
    "forwarded": Explained(
        "403",
        "The request came through a proxy, and without keys anybody could ask through it.",
        "Make a key with `ilb key` and start the server with --keys.",
    ),
    "has-outcome": Explained(
        "409",
        "The decision has an outcome, so it was carried out and can't be voided.",
        "Correct the outcome instead, if it is wrong.",
    ),
    "http": Explained(
        "400, 404, 405",
        "There is nothing at this address, or not with this method, or the body can't be read.",
        "/openapi.json lists what there is.",
    ),
    "idempotency-key": Explained(
        "400",
        "The request has no name by which a repeat could be told from a new one.",
        "Send a header `Idempotency-Key`: new for each new request, the same when it is repeated.",
    ),
    "invalid": Explained(
        "422",
        "The request is not of the form that is described: fields are missing, not known, or of another type.",
        "The detail names the fields; /openapi.json says what fits.",
    ),
    "key-needed": Explained(
        "401",
        "No key came with the request, or one that is not known here.",
        "Send `Authorization: Bearer KEY`. Whoever runs the server makes one with `ilb key`.",
    ),
    "key-reused": Explained(
        "422",
        "The same idempotency key came before with another request.",
        "Give each new request a key of its own; repeat a request only as it was.",
    ),
    "label": Explained(
        "422",
        "A label of a person has 1 to 200 characters, and no control characters.",
        "Use another label for this person.",
    ),
    "mistake": Explained(
        "500",
        "The server has made a mistake. Nothing was stored.",
        "Tell whoever runs it; /v1/status names the kind of failure. The request may be repeated.",
    ),
    "model": Explained(
        "422", "The model that was to be staged can't be read.", "Give the directory of a model that `ilb fit` saved."
    ),
    "no-fallback": Explained(
        "409",
        "The staged model does not know the fallback that is declared.",
        "Start the server with --fallback uniform, or with an action of both models; or stage another model.",
    ),
    "no-model": Explained(
        "404, 409", "No model is loaded.", "Give a readable model to `ilb serve`, or stage and promote one."
    ),
    "no-outcome": Explained("409", "The decision has no outcome that could be corrected.", "POST an outcome first."),
    "not-started": Explained(
        "503",
        "The server could not start, or was stopped before it had. Nothing was done.",
        "Ask again when it runs; what it said when it ended tells why.",
    ),
    "nothing-left": Explained(
        "422", "All actions are ruled out by `allowed` and `forbidden`.", "Leave at least one action open."
    ),
    "nothing-staged": Explained("409", "No model is staged that could be promoted.", "POST one to /v1/model first."),
    "overrun": Explained(
        "429",
        "More requests wait than can be answered soon.",
        "Send the same request again after the seconds that `Retry-After` says; slow down, or use a larger machine.",
    ),
    "role": Explained(
        "403",
        "The key is known, but is good for something else.",
        "Use one of the role that is named: decide, read or admin.",
    ),
    "superseded": Explained(
        "409",
        "Another outcome is in force than the one that the correction is for.",
        "Look at the decision, and correct the outcome in force, if it is still wrong.",
    ),
    "too-large": Explained("413", "The body is too large.", "Send fewer columns or tags."),
    "too-long": Explained("414", "The address is too long.", "Shorten the label of the person."),
    "unknown-action": Explained(
        "422",
        "No action goes by a name that was given.",
        "Use the names that /v1/model lists under `actions`.",
    ),
    "unknown-decision": Explained(
        "404",
        "No decision has this id here: it is misspelt, of another server, or was lost with a store that was restored "
        "from an older copy.",
        "Give the `decision_id` of an answer of this server.",
    ),
    "unknown-person": Explained(
        "404",
        "Nothing is stored under this label.",
        "Check the label; who is new is known after a first decision.",
    ),
    "voided": Explained(
        "409",
        "The decision was voided, so it has no outcome.",
        "If it was carried out after all, ask for another decision and tell its outcome.",
    ),
    "what-was-done": Explained(
        "422",
        "A shadow decision is not carried out, so it is not known what the reward is of.",
        "Say in `action` what was really done.",
    ),
    "wrong-host": Explained(
        "403",
        "Without keys this server answers on loopback only.",
        "Ask 127.0.0.1, or make a key with `ilb key` and start the server with --keys.",
    ),
}
"""By the name behind `/problems#`."""
