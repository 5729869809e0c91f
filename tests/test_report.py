"""The report: every section is there, labels are text, nothing is fetched, and its numbers agree with other ways."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from scipy.stats import pearsonr

from ilb.cli import run as run_the_program
from ilb.errors import IlbError
from ilb.estimates import Estimate, IntervalEstimate
from ilb.logs import Logs
from ilb.models.latent import LatentModel, LinearReward, NoiseLevels, Provenance
from ilb.networks import IdentityEncoder
from ilb.pages.contents import CONTENTS
from ilb.pages.origin import the_data
from ilb.pages.page import Page
from ilb.pages.report import Report, report
from ilb.trust.checks import Check, Checks, Verdict
from ilb.trust.evaluation import GAIN_OVER_DONE, QUEUE, Control, Evaluation, Horizon, Line
from ilb.trust.expectations import expect
from ilb.trust.portrait import Portrait, portray
from ilb.trust.stories import choose_people, tell_stories

NASTY = "<script>alert('x')</script> & \"y\""
PEOPLE, ROWS = 30, 8


@pytest.fixture(scope="module")
def logs() -> Logs:
    """Two columns and three actions; a column, an action and a person have names that a page must not obey."""
    rng = np.random.default_rng(0)
    state = rng.normal(size=(PEOPLE, 2))
    who = np.repeat(np.arange(PEOPLE), ROWS)
    context = state[who] + 0.5 * rng.normal(size=(len(who), 2))
    action = rng.integers(3, size=len(who))
    values = np.stack([state[:, 0], -state[:, 0], state[:, 1]], axis=1)
    table = pl.DataFrame(
        {
            "person": [NASTY if one == 0 else f"p{one}" for one in who],
            f"{NASTY} pain": context[:, 0],
            "mood": context[:, 1],
            "drug": np.array(["a", NASTY, "c"])[action],
            "relief": values[who, action] + 0.3 * rng.normal(size=len(who)),
        }
    )
    return Logs.from_frame(table, instance="person", action="drug", reward="relief")


@pytest.fixture(scope="module")
def model(logs: Logs) -> LatentModel:
    """The truth about these people, in the scale of the columns, put together by hand."""
    scale = np.array([column.scaling[1] for column in logs.schema.context if column.scaling])
    order = [logs.schema.action_index(label) for label in ("a", NASTY, "c")]
    theta = np.zeros((3, 2))
    theta[order] = np.array([[1.0, 0], [-1, 0], [0, 1]]) * scale
    errors = np.tile(np.diag([0.01, 0.02, 0.03]), (3, 1, 1))
    reward = LinearReward(jnp.asarray(theta), jnp.asarray([0.0, 0.1, 0.2]), jnp.asarray(errors))
    noise = NoiseLevels(
        jnp.asarray(np.diag(0.25 / scale**2)),
        jnp.zeros(2),
        jnp.asarray(np.diag(1 / scale**2)),
        jnp.full(3, 0.09),
        jnp.asarray(0.01),
    )
    choice = (
        {"candidate": "own level", "r2": 0.2, "log_likelihood": -1.2, "behind": 0.3, "standard_error": 0.02}
        | {"reference": True, "eligible": True, "chosen": False},
        {"candidate": "contexts 2", "r2": 0.8, "log_likelihood": -0.9, "behind": 0.0, "standard_error": None}
        | {"reference": False, "eligible": True, "chosen": True},
    )
    made = Provenance(
        "0", 0, {"name": "by hand"}, PEOPLE * ROWS, PEOPLE, notes=("taken <b>as given</b>",), choice=choice
    )
    return LatentModel(IdentityEncoder(), reward, noise, logs.schema, made)


@pytest.fixture(scope="module")
def portrait(model: LatentModel, logs: Logs) -> Portrait:
    return portray(model, logs)


CHECKS = Checks(
    (
        Check("drift", "Is a person <stationary>?", "0.1", "0.2", Verdict.FINE, "People stay."),
        Check("overlap", "Overlap?", "9 %", "10 %", Verdict.BROKEN, f"Nobody got {NASTY}.", "Drop <it>."),
        Check(
            *("amount", "More?", "-", "-", Verdict.FINE, "R² rises.", ""),
            {"by_rows": [(0, 0.1), (5, 0.6)], "by_people": [(10, 0.5), (20, 0.6)]},
        ),
        Check(
            *("intervals", "Right?", "80 %", "80 %", Verdict.FINE, "They hold.", ""),
            {"coverage": [{"level": level, "after": 5, "held": level - 0.01} for level in (0.5, 0.8, 0.95)]},
        ),
        Check(
            *("probabilities", "P?", "-", "-", Verdict.FINE, "Good.", ""), {"bins": [(0.6, 0.6, 30), (0.9, 0.8, 40)]}
        ),
    ),
    "30 people.",
)
GAIN = IntervalEstimate(Estimate(0.25, 0.05, PEOPLE), 0.15, 0.35)
EVALUATION = Evaluation(
    "Adaptive",
    PEOPLE,
    Horizon(4, 0.9, 0.95, None, (1.0, 1.0, 0.95, 0.9)),
    (Line(GAIN_OVER_DONE, QUEUE, 4, GAIN),),
    ("Adaptive would gain <0.25>.",),
    controls=(Control("shuffled", "0.01", "0", True),),
)


@pytest.fixture(scope="module")
def whole(model: LatentModel, logs: Logs) -> Report:
    return report(model, logs, checks=CHECKS, evaluation=EVALUATION, source=f"{NASTY}.csv", command="ilb report <x>")


class _Reader(HTMLParser):
    """Follows elements as a browser would, and refuses what does not end as it began."""

    EMPTY = frozenset({"meta", "br", "img", "input", "link", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> ends what did not begin"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read_page(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


def test_every_section_is_there_and_every_element_ends(whole: Report) -> None:
    reader = read_page(whole.html())
    anchors = {attributes["id"] for tag, attributes in reader.seen if tag == "h2"}
    assert anchors == {label for label, _ in CONTENTS}
    links = {attributes["href"] for tag, attributes in reader.seen if tag == "a"}
    assert links == {f"#{label}" for label in anchors}
    drawn = {attributes["aria-label"] for tag, attributes in reader.seen if tag == "svg"}
    for figure in (
        "a map of people",
        "how rewards",
        "columns",
        "effects",
        "learning",
        "do intervals",
        "do prob",
        "gains",
    ):
        assert any((name or "").startswith(figure) for name in drawn), figure
    beliefs = [name for name in drawn if (name or "").startswith("belief about")]
    assert len(beliefs) == 4


def test_labels_are_text_and_nothing_is_run_or_fetched(whole: Report) -> None:
    page = whole.html()
    reader = read_page(page)
    assert not {"script", "b2", "link", "img", "iframe", "stationary", "it", "x"} & {tag for tag, _ in reader.seen}
    assert sum(NASTY in text for text in reader.text) > 5  # as action, column, person, source
    assert not re.search(r"https?:|url\(|@import|//\w", page)
    assert all(not name.startswith("on") for _, attributes in reader.seen for name in attributes)


def test_the_page_is_for_light_and_dark_screens_phones_and_paper(whole: Report) -> None:
    page = whole.html()
    for medium in ("(prefers-color-scheme: dark)", "@media print", "max-width: 34rem", 'name="viewport"'):
        assert medium in page


def test_what_is_expected_is_what_the_belief_that_decides_expects(
    portrait: Portrait, model: LatentModel, logs: Logs
) -> None:
    np.testing.assert_allclose(portrait.expected, expect(model, logs).mean, atol=2e-4)
    assert (portrait.best == portrait.expected.argmax(axis=1)).all()


def test_associations_are_pearson_correlations_with_their_usual_intervals(portrait: Portrait, logs: Logs) -> None:
    means = np.stack([logs.context[logs.instance == one].mean(axis=0) for one in range(PEOPLE)])
    for direction in portrait.directions:
        for one in direction.columns:
            other = pearsonr(direction.scores, means[:, logs.schema.names.index(one.name)])
            bounds = other.confidence_interval(0.95)
            np.testing.assert_allclose((one.value, one.low, one.high), (other.statistic, *bounds), atol=1e-4)


def test_directions_hold_what_people_differ_in(portrait: Portrait, model: LatentModel) -> None:
    """With two coordinates behind three actions, two directions give all contrasts back."""
    assert sum(one.share for one in portrait.directions) > 0.99
    first = portrait.directions[0]
    effects = np.array([one.value for one in first.effects])
    scores, spread = first.scores, portrait.expected - portrait.expected.mean(axis=0)
    slopes = [np.polyfit(scores, column, 1)[0] for column in spread.T]
    np.testing.assert_allclose(effects, slopes, atol=1e-6)
    assert all(one.low < one.value < one.high for one in first.effects)


def test_errors_of_averages_are_those_of_the_coefficients(portrait: Portrait) -> None:
    """The population's mean is zero, so all that is unsure of an average person is the intercept."""
    for line in portrait.actions:
        np.testing.assert_allclose(line.average.high - line.average.value, 1.96 * np.sqrt(0.03), rtol=1e-3)


def test_stories_begin_with_the_average_and_end_with_the_portrait(
    portrait: Portrait, model: LatentModel, logs: Logs
) -> None:
    stories = tell_stories(model, logs, portrait)
    assert len({story.person for story in stories}) == len(stories) == 4
    for story in stories:
        person = portrait.people.index(story.person)
        np.testing.assert_allclose(story.mean[0], [line.average.value for line in portrait.actions], atol=1e-6)
        np.testing.assert_allclose(story.mean[-1], portrait.expected[person], atol=1e-9)
        assert [reward for *_, reward in story.taken] == logs.reward[logs.instance == person].tolist()
        assert (np.diff(story.std, axis=0) < 1e-9).all()  # the more is seen, the surer


def test_people_are_chosen_for_what_they_are_shown_for(portrait: Portrait, logs: Logs) -> None:
    chosen = choose_people(logs, portrait)
    assert portrait.best[chosen["best served by something else than most"]] != portrait.usual
    assert portrait.sureness[chosen["still undecided"]] < np.median(portrait.sureness)
    assert portrait.sureness[chosen["a clear case"]] > np.median(portrait.sureness)


def test_what_was_left_out_is_said(model: LatentModel, logs: Logs) -> None:
    text = " ".join(read_page(report(model, logs, without=["checks", "gain"]).html()).text)
    assert "The checks were left out" in text
    assert "The gain was left out" in text
    with pytest.raises(IlbError, match="without checks and gain"):
        report(model, logs, without=["regret"])


def test_a_model_that_cannot_be_fitted_again_says_so_where_the_gain_would_be(model: LatentModel, logs: Logs) -> None:
    made = report(model, logs, checks=CHECKS)
    assert made.evaluation is None
    assert "does not say how it was fitted" in made.html()


def test_people_without_contexts_are_told_of_by_what_actions_do_for_them(logs: Logs) -> None:
    bare = logs.without([column.name for column in logs.schema.context])
    empty = np.zeros((0, 0))
    noise = NoiseLevels(jnp.asarray(empty), jnp.zeros(1), jnp.eye(1), jnp.full(3, 0.09), jnp.asarray(0.01))
    reward = LinearReward.known(jnp.asarray([[1.0], [-1.0], [0.2]]), jnp.zeros(3))
    page = report(LatentModel(IdentityEncoder(), reward, noise, bare.schema), bare, without=["checks", "gain"]).html()
    text = " ".join(read_page(page).text)
    assert "no context columns" in text
    assert "lead of the best action" in text or "direction 2" in text


def test_the_command_writes_the_page_or_says_why_not(
    model: LatentModel, logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model.save(tmp_path / "model")
    logs.write(tmp_path / "logs.csv")

    def run(*arguments: Any) -> int:
        monkeypatch.setattr(sys, "argv", ["ilb", "report", *map(str, arguments)])
        return run_the_program()

    where = (tmp_path / "model", tmp_path / "logs.csv", "--no-checks", "--no-gain", "--out")
    assert run(*where, tmp_path / "page.html") == 0
    assert "--no-checks --no-gain" in (tmp_path / "page.html").read_text()
    assert run(*where, tmp_path / "page.pdf") == 2
    assert "must end in .html" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "page.pdf").exists()


def test_a_column_with_gaps_has_the_mean_and_deviation_of_what_is_there() -> None:
    pain = [1.0, None, 3.0, 5.0, None, 7.0]
    frame = pl.DataFrame({"who": [1, 1, 2, 2, 3, 3], "pain": pain, "did": ["a", "b"] * 3, "got": [0.0, 1.0] * 3})
    page = Page("t")
    the_data(page, Logs.from_frame(frame, instance="who", action="did", reward="got"))
    there = np.array([value for value in pain if value is not None])
    assert f"{there.mean():.4g}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{there.std():.3g}" in "".join(page.parts)
