"""The page of the service: what it shows, to whom, and how it looks in a real browser."""

import itertools
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from starlette.testclient import TestClient

from ilb.live.bandit import LiveBandit
from ilb.serve.api import make_app
from ilb.serve.keys import Keys, Role, new_key
from ilb.serve.names import ActionNames
from ilb.serve.page.digest import BINS, Digests
from ilb.serve.page.drawing import Series, lines
from ilb.serve.people import ServedModel
from ilb.serve.service import Service
from ilb.serve.store import open_store
from ilb.serve.store.store import StoreUnavailableError
from serving import POLICY, ServerThread, clinic_model, open_client

HOSTILE = "<script>alert(1)<b>'\""
NOISE = 0.25


class Site:
    """A service with some people, whose page reads the store by a connection of its own."""

    def __init__(self, folder: Path) -> None:
        served = ServedModel(
            LiveBandit.on(clinic_model(), POLICY, seed=3), POLICY, "by hand", dict.fromkeys("ABC", NOISE)
        )
        self.store = open_store(str(folder / "ilb.db"))
        self.reader = open_store(str(folder / "ilb.db"), read_only=True)
        self.service = Service(self.store, served, served.names, deadline=30.0)
        self.service.record_model(served, "promoted")
        self.keys, made = {}, []
        for role in Role:
            self.keys[role], line = new_key(role, "somebody")
            made.append(line)
        (folder / "keys").write_text("\n".join(made))
        self.known_keys = Keys.read(folder / "keys")
        self.app = make_app(self.service, reader=self.reader)
        self.client = self.open()
        self.decided = [self._visit(person, n) for n in range(4) for person in ("anna", "bo", HOSTILE)]

    def open(self, *, locked: bool = False) -> TestClient:
        app = make_app(self.service, reader=self.reader, keys=self.known_keys) if locked else self.app
        return open_client(app, raise_server_exceptions=False, follow_redirects=False)

    def _visit(self, person: str, n: int) -> dict[str, Any]:
        body: dict[str, Any] = {"context": {"pain": 0.5 * n - 1, "mobility": 0.3 * n}, "tags": {"site": HOSTILE}}
        kinds: list[dict[str, Any]] = [{}, {"forbidden": ["B"]}, {"mode": "apprentice", "taken": "A"}, {}]
        body |= kinds[n]
        if person == "bo" and n == 3:
            body["made"] = {"action": "A", "cause": HOSTILE, "decided_at": "2026-01-02T03:04:05Z"}
        head = {"Idempotency-Key": f"k{n}"}
        told = self.client.post(f"/v1/people/{quote(person)}/decisions", json=body, headers=head).json()
        where = f"/v1/decisions/{told['decision_id']}"
        if (person, n) == ("anna", 2):
            self.client.post(f"{where}/void", json={"why": "withdrawn"})
        elif (person, n) != ("anna", 3):
            event = self.client.post(f"{where}/outcome", json={"reward": n - 1.5}).json()["event"]
            if (person, n) == ("bo", 0):
                self.client.put(f"{where}/outcome", json={"reward": 2.5, "supersedes": event, "why": HOSTILE})
        return dict(told)

    def every_page(self) -> list[str]:
        decisions = [f"/decisions/{one['decision_id']}" for one in self.decided]
        lists = ["/", "/people", "/people?label=bo", "/decisions", "/try", "/sign-in"]
        filters = [f"/decisions?only={kind}" for kind in ("pending", "fallback", "voided", "corrected")]
        return [*lists, *filters, "/people/anna", f"/people/{quote(HOSTILE)}", *decisions]

    def close(self) -> None:
        self.service.close()
        self.reader.close()
        self.store.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


class Outline(HTMLParser):
    """What a screen reader goes by."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.fields: list[str] = []
        self.labelled: set[str] = set()
        self.wrong: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.inside_label = 0
        self._expect: dict[str, set[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in ("script", "iframe", "object", "style") or any(name.startswith("on") for name in given):
            self.wrong.append(f"{tag} {given}")
        if "style" in given:
            self.wrong.append(f"inline style in {tag}")
        for name in ("href", "src", "action"):
            if not (given.get(name) or "/").startswith(("/", "#")) or (given.get(name) or "").startswith("//"):
                self.wrong.append(f"{name} leads to {given[name]}")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.inside_label += tag == "label"
        if tag == "label":
            self.labelled.add(str(given.get("for")))
        if tag in ("input", "select") and not self.inside_label and "hidden" not in given:
            self.fields.append(str(given.get("id")))
        if tag == "table":
            self._expect["caption"] = set()
        if tag == "svg" and "aria-label" not in given:
            self._expect["svg"] = set(str(given["aria-labelledby"]).split())
        if tag in ("title", "desc") and "svg" in self._expect:
            self._expect["svg"].discard(str(given.get("id")))
        if tag == "caption":
            self._expect.pop("caption")
        if tag == "th" and "scope" not in given:
            self.wrong.append("a header of a table without its scope")
        if tag == "img" and "alt" not in given:
            self.wrong.append("a picture without words")

    def handle_endtag(self, tag: str) -> None:
        self.inside_label -= tag == "label"
        if tag == "table" and "caption" in self._expect:
            self.wrong.append("a table without a caption")
        if tag == "svg" and self._expect.pop("svg", set()):
            self.wrong.append("a figure without title or description")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_every_page_can_be_read_without_eyes_scripts_or_other_servers(site: Site) -> None:
    for where in site.every_page():
        answer = site.client.get(where)
        assert answer.status_code == 200, (where, answer.text)
        outline = Outline(answer.text)
        assert outline.wrong == [], where
        assert outline.headings[0] == 1
        assert outline.headings.count(1) == 1
        assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(outline.headings)), where
        assert set(outline.fields) <= outline.labelled, where
        assert "<script" not in answer.text
        assert "<b>" not in answer.text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    shown = Outline(site.client.get(f"/people/{quote(HOSTILE)}").text)
    assert HOSTILE in "".join(shown.text)


def test_averages_of_the_first_page_are_those_of_the_log(site: Site) -> None:
    digest = Digests(site.service, site.reader).now()
    assert digest.whole is not None
    rows = site.client.get("/v1/log").text.splitlines()
    rewards = [one["relief"] for row in rows if (one := json.loads(row))["relief"] is not None]
    assert digest.whole.decisions == len(site.decided) == 12
    assert digest.whole.reward == pytest.approx(np.mean(rewards))
    assert digest.whole.reward_error == pytest.approx(np.std(rewards, ddof=1) / np.sqrt(len(rewards)))
    chosen = [one["action"] for one in site.decided]
    assert digest.whole.shares == pytest.approx({name: chosen.count(name) / 12 for name in set(chosen)})
    probabilities = [np.array(list(one["propensities"].values())) for one in site.decided if one["propensities"]]
    entropy = [-np.sum(p[p > 0] * np.log(p[p > 0])) for p in probabilities]
    assert digest.whole.entropy == pytest.approx(np.mean(entropy))
    surprises, fallback = [], []
    stories = [site.client.get(f"/v1/decisions/{one['decision_id']}").json() for one in site.decided]
    for story in stories:
        made, outcome = story["decision"], story["outcome"]
        if outcome is None or made["expected_reward"] is None:
            continue
        name = outcome["action"]
        variance = made["reward_std"][name] ** 2 + NOISE
        surprises.append((outcome["reward"] - made["expected_reward"][name]) ** 2 / variance)
        left = {"A", "B", "C"} - set(story["request"].get("forbidden", []))
        fallback.append(np.mean([made["expected_reward"][one] for one in left]))
    assert digest.whole.surprise == pytest.approx(np.mean(surprises))
    assert digest.whole.fallback_expected == pytest.approx(np.mean(fallback))
    assert sum(one.decisions for one in digest.bins) == 12
    assert len(digest.bins) == min(BINS, 12)
    page = "".join(Outline(site.client.get("/").text).text)
    assert f"{np.mean(rewards):.3g}" in page


def test_people_and_decisions_are_shown_with_reasons_and_outcomes(site: Site) -> None:
    text = " ".join(" ".join(Outline(site.client.get("/people/anna").text).text).split())
    for made in site.decided[::3]:
        assert made["reason"] in text
    assert "void: withdrawn" in text
    assert "waits" in text
    pending = site.client.get("/decisions?only=pending").text
    assert [one["decision_id"] in pending for one in site.decided].count(True) == 1
    corrected = site.client.get("/decisions?only=corrected").text
    assert site.decided[1]["decision_id"] in corrected
    detail = " ".join(
        " ".join(Outline(site.client.get(f"/decisions/{site.decided[1]['decision_id']}").text).text).split()
    )
    assert "gave 2.5, instead of event 2" in detail
    assert "corrected" in detail
    people = site.client.get("/people?label=bo").text
    assert "/people/bo" in people
    assert "/people/anna" not in people
    for where in ("/people/nobody", "/decisions/nothing"):
        answer = site.client.get(where)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")


@pytest.mark.filterwarnings("ignore::ilb.errors.LogsWarning")  # a field is left empty
def test_looking_and_trying_write_nothing(site: Site) -> None:
    before = site.store.newest(1)[0].position
    for where in site.every_page():
        site.client.get(where)
    typed = {"person": "anna", "column-0": "1,4", "column-1": "", "forbidden": "C"}
    tried = site.client.post("/try", data=typed)
    asked = {"context": {"pain": 1.4, "mobility": None}, "forbidden": ["C"], "dry_run": True}
    answer = site.client.post("/v1/people/anna/decisions", json=asked).json()
    text = " ".join(" ".join(Outline(tried.text).text).split())
    assert answer["reason"] in text
    assert 'value="1,4"' in tried.text  # what was typed stays
    refused = site.client.post("/try", data={**typed, "column-0": HOSTILE})
    assert (refused.status_code, "That does not work" in refused.text, "<script" in refused.text) == (422, True, False)
    nothing = site.client.post("/try", data={"column-0": "1", "forbidden": ["A", "B", "C"]})
    assert "All actions are ruled out" in nothing.text
    assert site.client.post("/try", content=b"\xff=1").status_code == 400
    assert site.store.newest(1)[0].position == before
    with pytest.raises(StoreUnavailableError, match="reading only"):
        site.reader.forget_states()


def test_who_may_see_what(site: Site) -> None:
    client = site.open(locked=True)
    for where in ("/", "/people", "/people/anna", "/decisions", "/try"):
        answer = client.get(where)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert client.get("/static/page.css").status_code == 200
    assert client.post("/sign-in", data={"key": "ilb_guess"}).status_code == 401
    may = {
        Role.READ: {"/", "/people", "/decisions"},
        Role.DECIDE: {"/try"},
        Role.ADMIN: {"/", "/people", "/decisions", "/try"},
    }
    for role, seen in may.items():
        browser = site.open(locked=True)
        entered = browser.post("/sign-in", data={"key": site.keys[role]})
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert site.keys[role] not in entered.headers["set-cookie"]
        found = {where for where in ("/", "/people", "/decisions", "/try") if browser.get(where).status_code == 200}
        assert found == seen, role
        assert browser.get("/v1/status").status_code == 401  # the session is for the pages alone
        assert browser.post("/sign-out").status_code == 303
        assert browser.get("/try").headers["location"] == "/sign-in"
    head = {"Authorization": f"Bearer {site.keys[Role.READ]}"}
    assert site.open(locked=True).get("/people", headers=head).status_code == 200
    stranger = site.client.get("/", headers={"Host": "clinic.example"})
    assert stranger.status_code == 403  # without keys: loopback only


def test_what_is_wrong_is_shown_with_what_to_do(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*given: Any, **named: Any) -> Any:
        raise StoreUnavailableError("the disk is full.")

    monkeypatch.setattr(site.store, "check", failed)
    monkeypatch.setattr(site.app.state.office.health, "_seen", None)
    text = site.client.get("/").text
    assert "Red: look now" in text
    assert "Free space on the disk" in text
    monkeypatch.setattr(site.reader, "people", failed)
    answer = site.client.get("/people")
    assert answer.status_code == 503
    assert "the disk is full" in answer.text
    site.app.state.office.health._seen = None


def test_a_service_without_decisions_and_without_a_model_says_so(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "ilb.db"))
    service = Service(store, None, ActionNames(["A", "B"]))
    client = open_client(make_app(service), raise_server_exceptions=False)
    first = client.get("/").text
    assert "No decisions yet" in first
    assert "no model is loaded" in first
    assert "Nobody yet" in client.get("/people").text
    assert client.get("/try").status_code == 200
    assert "there is nothing to try" in client.post("/try", data={"person": "anna"}).text
    service.close()
    store.close()


def test_lines_are_where_their_values_are() -> None:
    drawn = str(lines("a<b", "words", ["1", "2", "3"], [Series("s", "s0", [0.0, None, 4.0])], bounds=(0.0, 4.0)))
    assert "<title id" in drawn
    assert "a&lt;b" in drawn
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    assert places == [(44, 204), (392, 12)]  # the corners, with a gap in between


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d');
  const light = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const read = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const found = [];
  for (const one of document.querySelectorAll('main *, header *, footer *')) {
    const own = [...one.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !one.getClientRects().length) continue;
    let behind = one, ground;
    do { ground = read(getComputedStyle(behind).backgroundColor); behind = behind.parentElement; }
    while (behind && ground.length === 4 && ground[3] === 0);
    const style = getComputedStyle(one);
    const ink = read(one.namespaceURI.endsWith('svg') ? style.fill : style.color);
    const pair = [luminance(ink), luminance(ground)].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) found.push(`${one.tagName} ${one.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
}"""


@pytest.mark.slow
def test_in_a_real_browser_it_fits_is_legible_and_works_by_keyboard_without_scripts(site: Site) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="NO BROWSER TEST: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("NO BROWSER TEST: there is no chromium on this machine")
    server = ServerThread(site.app)
    server.start()
    said: list[str] = []
    try:
        with api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for width, scheme in ((1280, "light"), (375, "dark")):
                context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
                page = context.new_page()
                page.on("console", lambda message: said.append(message.text))
                page.on(
                    "request", lambda request: said.append(request.url) if server.address not in request.url else None
                )
                page.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
                for where in ("/", "/people", f"/people/{quote(HOSTILE)}", "/decisions", "/try", "/sign-in"):
                    page.goto(server.address + where)
                    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                    assert wide <= 0, (where, width)
                    assert page.evaluate(CONTRAST) == [], (where, scheme)
                context.close()
            context = browser.new_context(java_script_enabled=False)
            page = context.new_page()
            page.goto(f"{server.address}/try")
            page.keyboard.press("Tab")
            assert page.locator(":focus").text_content() == "Skip to content"
            page.focus("#person")
            page.keyboard.type("anna")
            page.keyboard.press("Enter")
            page.wait_for_selector(".answer")
            assert page.locator(".answer").text_content() in ("A", "B", "C")
            browser.close()
    finally:
        server.stop()
    assert said == []
