"""What notebooks show: escaped tables, and figures of what was computed."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from scipy.linalg import eigh

from ilb.drawing import LEVELS, coverage
from ilb.errors import IlbError
from ilb.live.bandit import LiveBandit
from ilb.live.settling import Settling
from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.networks import IdentityEncoder
from ilb.offline.ahead import predict_ahead, score_ahead
from ilb.offline.fit import complete_model
from ilb.plots.regret import save_figure
from narrowed import known

EVIL = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def logs() -> Logs:
    rng = np.random.default_rng(0)
    z = np.repeat(rng.normal(size=(40, 2)), 10, axis=0)
    drug = rng.integers(3, size=len(z))
    table = pl.DataFrame(
        {
            "who": np.repeat([f"p{i}" for i in range(39)] + [EVIL], 10),
            f"x {EVIL}": z[:, 0] + 0.5 * rng.normal(size=len(z)),
            "y": z[:, 1] + 0.5 * rng.normal(size=len(z)),
            "drug": np.array(["a $\\alpha$", "_b", EVIL])[drug],
            "gain": np.choose(drug, [z[:, 0], z[:, 1], -z[:, 0]]) + 0.3 * rng.normal(size=len(z)),
        }
    )
    return Logs.from_frame(table, instance="who", action="drug", reward="gain")


@pytest.fixture(scope="module")
def model(logs: Logs) -> LatentModel:
    return complete_model(IdentityEncoder(), logs)


def safe(html: str) -> str:
    assert "<script" not in html
    assert html.count("<table>") == html.count("</table>")
    return html


def test_tables_of_notebooks_are_escaped_and_say_what_there_is(logs: Logs, model: LatentModel) -> None:
    shown = safe(logs._repr_html_())
    assert "400 rows of 40 instances" in shown
    for column in ("who", "y", "drug", "gain", "&lt;script&gt;"):
        assert column in shown
    assert "LatentModel(n=2, K=3)" in safe(model._repr_html_())
    person = LiveBandit.on(model, "Calibrated").start(EVIL)
    decision = person.decide({f"x {EVIL}": 0.5, "y": 0.1})
    shown = safe(decision._repr_html_())
    bold = re.findall(r"<b>([^<]*)</b>", shown)
    assert f"{decision.expected_reward[decision.action]:.3g}" in bold
    assert "1 context seen, 1 reward waited for" in safe(person._repr_html_())
    assert repr(person).startswith("LiveInstance(")
    history = pl.DataFrame({"who": [EVIL], f"x {EVIL}": [0.5], "y": [0.1]})
    assert "1 recommendation" in safe(LiveBandit.on(model, "Calibrated").recommend(history)._repr_html_())


def points(figure: Figure) -> np.ndarray:
    return np.concatenate([np.asarray(drawn.get_offsets()) for drawn in figure.axes[0].collections])


def test_the_map_of_people_has_everyone_once_with_the_widest_direction_across(
    logs: Logs, model: LatentModel, tmp_path: Path
) -> None:
    figure = model.plot.people(logs)
    found = points(figure)
    assert found.shape == (40, 2)
    assert found[:, 0].std() >= found[:, 1].std()
    # An encoder that changes nothing: the direction of the mean contexts in which people differ most from noise.
    _, directions = eigh(np.asarray(model.noise.population_covariance), np.asarray(model.noise.encoding_covariance))
    across = logs.context.reshape(40, 10, 2).mean(axis=1) @ directions[:, -1]
    across -= np.asarray(model.noise.population_mean) @ directions[:, -1]
    either = [np.abs(np.sort(found[:, 0]) - np.sort(sign * across)).max() for sign in (1, -1)]
    assert min(either) < 1e-4
    save_figure(figure, tmp_path / "people.svg")  # labels that would be formulas or nothing
    assert "alert" in (tmp_path / "people.svg").read_text()
    assert "<script" not in (tmp_path / "people.svg").read_text()


def test_the_belief_over_time_starts_with_everybody_and_ends_with_the_person(logs: Logs, model: LatentModel) -> None:
    history = logs.select([3]).to_frame("pyarrow")
    figure = model.plot.belief(history)
    lines = {
        str(line.get_label()).lstrip("\u200b").replace(r"\$", "$"): np.asarray(line.get_ydata())
        for line in figure.axes[0].lines
    }
    actions = known(model.schema).actions
    assert set(lines) == set(actions)
    for action, before in zip(actions, known(Settling.of(model)).everybody, strict=True):
        assert len(lines[str(action)]) == 11
        assert lines[str(action)][0] == pytest.approx(before, abs=1e-4)
    (final,) = LiveBandit.on(model).recommend(history)
    assert {action: line[-1] for action, line in lines.items()} == pytest.approx(dict(final.expected_reward), abs=1e-3)
    assert sum(final.probability_best.values()) == pytest.approx(1, abs=1e-9)
    rewards = [point[1] for part in figure.axes[0].collections for point in np.asarray(part.get_offsets())]
    assert set(history["gain"].to_numpy().round(4)) <= set(np.round(rewards, 4))
    with pytest.raises(IlbError, match=r"40 people, .*say whom in person="):
        model.plot.belief(logs.to_frame("pyarrow"))
    with pytest.raises(IlbError, match="nobody in the table is called 'eve'"):
        model.plot.belief(history, person="eve")


def test_calibration_shows_the_shares_that_scores_have(logs: Logs, model: LatentModel) -> None:
    ahead = predict_ahead(model, logs)
    held, errors = coverage(ahead, LEVELS)
    scores = score_ahead(ahead)
    for level, score in ((0.8, scores.covered_80), (0.95, scores.covered_95)):
        place = int(np.flatnonzero(level == LEVELS)[0])
        assert held[place] == pytest.approx(score.value)
        assert errors[place] == pytest.approx(score.standard_error, rel=0.05)
    drawn = model.plot.calibration(logs).axes[0].lines[1]
    np.testing.assert_allclose(np.asarray(drawn.get_ydata()), held)
