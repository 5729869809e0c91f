"""Recommendations from tables of histories: as live instances would decide, and what the choice rests on."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

from ilb.errors import DecisionError, LogsError, SchemaError
from ilb.live import recall
from ilb.live.bandit import LiveBandit
from ilb.live.recommendation import sentence_of
from ilb.live.recommending import NEW_PERSON, Lead, _counts, _put_together
from ilb.live.settling import ROUNDS, Settling
from ilb.logs import Logs
from ilb.logs.histories import read_histories
from ilb.models.calibration import Calibration
from ilb.models.latent import LatentModel
from ilb.networks import IdentityEncoder
from ilb.offline.fit import complete_model
from ilb.online.latent import CalibratedBelief
from ilb.types import Step
from narrowed import known

DRUGS = ("aspirin", "placebo", "statin")


def draw_table(people: int, visits: int, seed: int, prefix: str = "p") -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    z = np.repeat(rng.normal(size=people), visits)
    drug = rng.integers(3, size=z.size)
    return pl.DataFrame(
        {
            "patient": np.repeat([f"{prefix}{i}" for i in range(people)], visits),
            "visit": np.tile(np.arange(visits), people),
            "score": 10 + 2 * (z + rng.normal(size=z.size)),
            "marker": z + rng.normal(size=z.size),
            "drug": np.array(DRUGS)[drug],
            "response": 100 + np.array([1.0, 0.3, -1.0])[drug] * z + 0.5 * rng.normal(size=z.size),
        }
    )


@pytest.fixture(scope="module")
def earlier() -> pl.DataFrame:
    return draw_table(60, 20, seed=0)


@pytest.fixture(scope="module")
def clinic(earlier: pl.DataFrame) -> LatentModel:
    logs = Logs.from_frame(earlier, instance="patient", time="visit", action="drug", reward="response")
    return complete_model(IdentityEncoder(), logs)


@pytest.fixture(scope="module")
def bandit(clinic: LatentModel) -> LiveBandit:
    return LiveBandit.on(clinic, "Calibrated")


@pytest.fixture(scope="module")
def histories() -> pl.DataFrame:
    """Five people with 1 to 5 visits; the last one of each is open, but for the fifth."""
    whole = draw_table(5, 5, seed=1, prefix="new")
    kept = whole.filter(pl.col("visit") <= pl.col("patient").str.slice(3).cast(int))
    open_visit = (pl.col("visit") == pl.col("patient").str.slice(3).cast(int)) & (pl.col("patient") != "new4")
    return kept.with_columns(pl.when(open_visit).then(None).otherwise(pl.col(c)).alias(c) for c in ("drug", "response"))


def contexts_of(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("score", "marker")}


def test_a_recommendation_is_what_a_live_instance_decides_that_lived_through_the_history(
    bandit: LiveBandit, histories: pl.DataFrame
) -> None:
    found = bandit.recommend(histories)
    assert [one.instance for one in found] == [f"new{i}" for i in range(5)]
    for one in found:
        live = bandit.start(one.instance)
        rows = histories.filter(pl.col("patient") == one.instance).to_dicts()
        for row in rows:
            decision = live.decide(contexts_of(row))
            if row["response"] is not None:
                live.learn(decision, row["response"], action=row["drug"])
        if rows[-1]["drug"] is None:
            assert one.action == decision.action
            assert dict(one.expected_reward) == pytest.approx(dict(decision.expected_reward), abs=1e-4)
            assert dict(one.probability_best) == pytest.approx(dict(decision.probability_best), abs=0.01)
            assert one.interval["aspirin"] == pytest.approx(decision.interval()["aspirin"], abs=1e-3)
        assert (one.rows, one.rewards) == (len(rows), sum(row["response"] is not None for row in rows))


def test_after_a_whole_history_the_last_reward_counts_and_no_context_counts_twice(
    bandit: LiveBandit, clinic: LatentModel, histories: pl.DataFrame
) -> None:
    belief = CalibratedBelief(clinic)
    evidence, schema = belief.init(), known(clinic.schema)
    for row in histories.filter(pl.col("patient") == "new4").to_dicts():
        context = jnp.asarray(schema.encode(contexts_of(row)))
        evidence = belief.observe(evidence, context)
        step = Step(context, jnp.asarray(schema.action_index(row["drug"])), jnp.asarray(row["response"]))
        evidence = belief.learn(evidence, step)
    found = bandit.recommend(histories)[4]
    np.testing.assert_allclose(list(found.expected_reward.values()), belief.believe(evidence).mean(), atol=2e-3)


def test_people_of_a_table_go_on_as_if_they_had_lived_through_it(bandit: LiveBandit, histories: pl.DataFrame) -> None:
    people = bandit.from_history(histories)
    live = bandit.start("new3")
    for row in histories.filter(pl.col("patient") == "new3").to_dicts():
        decision = live.decide(contexts_of(row))
        if row["response"] is None:
            live.forget(decision)
        else:
            live.learn(decision, row["response"], action=row["drug"])
    visit = {"score": 11.0, "marker": 0.4}
    recalled, lived = people["new3"].decide(visit), live.decide(visit)
    assert (recalled.action, recalled.number, recalled.instance) == (lived.action, lived.number, "new3")
    assert dict(recalled.expected_reward) == pytest.approx(dict(lived.expected_reward), abs=1e-4)


@pytest.mark.parametrize("name", ["Regret balancing", "MABPrior"])
def test_policies_to_which_the_order_matters_recall_what_they_would_have_lived_through(
    clinic: LatentModel, histories: pl.DataFrame, name: str
) -> None:
    """Their states depend on what they would have chosen themselves, and on which context came first."""
    bandit = LiveBandit.on(clinic, name, seed=2)
    live, rows = bandit.start("new4"), histories.filter(pl.col("patient") == "new4")
    for row in rows.to_dicts():
        live.learn(live.decide(contexts_of(row)), row["response"], action=row["drug"])
    lived, recalled = (json.loads(one.to_json()) for one in (live, bandit.from_history(rows)["new4"]))
    assert lived["seen"] == recalled["seen"] == 5
    np.testing.assert_allclose(recalled["state"], lived["state"], rtol=1e-3, atol=1e-4)


def test_actions_without_reward_wait_for_it(bandit: LiveBandit, histories: pl.DataFrame) -> None:
    table = histories.with_columns(response=pl.when(pl.col("visit") == 1).then(None).otherwise(pl.col("response")))
    person = bandit.from_history(table)["new3"]
    assert list(person.pending) == [1]
    person.learn(1, 101.0)
    assert list(person.pending) == []


def test_nothing_known_gives_the_best_of_the_population_with_its_uncertainty(
    bandit: LiveBandit, clinic: LatentModel
) -> None:
    nothing = pl.DataFrame(schema={"patient": pl.String, "score": pl.Float64, "marker": pl.Float64})
    (found,) = bandit.recommend(nothing)
    settling = known(Settling.of(clinic))
    assert found.instance == NEW_PERSON
    assert (found.rows, found.rewards) == (0, 0)
    np.testing.assert_allclose(list(found.expected_reward.values()), settling.everybody, rtol=1e-5)
    assert found.expected_reward[found.action] == max(found.expected_reward.values())
    low, high = found.interval[found.action]
    belief = CalibratedBelief(clinic)
    std = belief.believe(belief.init()).std()[DRUGS.index(str(found.action))]
    assert high - low == pytest.approx(2 * 1.96 * float(std), rel=0.01)
    named = pl.DataFrame({"patient": ["eve"], "score": [None], "marker": [None]})
    (eve,) = bandit.recommend(named)
    assert eve.instance == "eve"
    assert dict(eve.expected_reward) == dict(found.expected_reward)


def test_what_a_choice_rests_on_adds_up_to_its_lead(bandit: LiveBandit, histories: pl.DataFrame) -> None:
    found = bandit.recommend(histories)
    by_contexts = bandit.recommend(histories.with_columns(response=pl.lit(None, pl.Float64)))
    for one, shown in zip(found, by_contexts, strict=True):
        assert one.ahead_of is not None
        assert one.lead == pytest.approx(one.expected_reward[one.action] - one.expected_reward[one.ahead_of])
        assert sum(one.rests_on.values()) == pytest.approx(one.lead, abs=1e-4)
        expected = shown.expected_reward
        by_both = one.rests_on["everybody"] + one.rests_on["contexts"]
        assert by_both == pytest.approx(expected[one.action] - expected[one.ahead_of], abs=1e-4)
    assert found[0].rests_on["own rewards"] == pytest.approx(0, abs=1e-5)  # one open visit, no reward
    assert abs(found[4].rests_on["own rewards"]) > 1e-3


def test_the_rounds_until_it_is_settled_are_those_after_which_the_better_is_known(clinic: LatentModel) -> None:
    """Against people drawn from what is believed now, and the posterior means that more evidence would give."""
    settling, belief = known(Settling.of(clinic)), CalibratedBelief(clinic)
    lead, now = 0.3, (2.0, jnp.array([1.0, 1.0, 0.0]))
    expected = np.array([[100.0, 100.0 - lead, 90.0]])
    (rounds,) = settling.rounds(expected, np.ones((1, 3), bool), np.array([2]), np.asarray(now[1])[None])
    assert 1 < rounds < ROUNDS[-1]
    rng = np.random.default_rng(0)

    def variance(seen: float, pulls: Any) -> float:
        state = belief.init()
        evidence = state._replace(rounds=jnp.asarray(seen), rewards=state.rewards._replace(pulls=jnp.asarray(pulls)))
        rewards = belief.believe(evidence)
        points = jnp.asarray(rng.normal(size=(20_000, rewards.noise_size)), jnp.float32)
        values = np.asarray(jax.vmap(rewards.at)(points))
        return float((values[:, 0] - values[:, 1]).var())

    before = variance(*now)
    for more, is_settled in ((rounds, True), (ROUNDS[ROUNDS.index(int(rounds)) - 1], False)):
        after = variance(now[0] + more, now[1] + jnp.array([more / 2, more / 2, 0.0]))
        truth = lead + np.sqrt(before) * rng.normal(size=200_000)
        # What is then believed of a lead: the truth and noise, shrunk so that it has the variance that is resolved.
        resolved = 1 - after / before
        noise = np.sqrt(before * resolved * (1 - resolved)) * rng.normal(size=len(truth))
        then = lead + resolved * (truth - lead) + noise
        wrong = np.mean((then > 0) != (truth > 0))
        assert (wrong < 0.05 * 1.1) if is_settled else (wrong > 0.05 * 0.9)


def test_all_actions_that_may_be_best_are_tried_until_one_is_known_to_be() -> None:
    """Three actions have effects of their own, and rounds for two of them would never tell of the third."""
    own = Calibration(
        np.zeros((0, 0)), np.zeros(0), np.zeros((3, 0)), np.zeros(3), np.zeros(0), np.full(3, 0.1), np.ones(3)
    )
    settling, every = Settling(own, 0), np.ones((1, 3), bool)
    expected, nothing = np.array([[1.5, 0.0, 0.0]]), np.zeros((1, 3))
    (rounds,) = settling.rounds(expected, every, np.array([0]), nothing)
    assert rounds < ROUNDS[-1]
    shares = np.full((1, 3), rounds / 3)
    before = settling.lead_variance(np.array([0]), np.array([0]), nothing)[0, 2]
    after = settling.lead_variance(np.array([0]), np.array([rounds]), shares)[0, 2]
    points = 1.5 + np.sqrt(before - after) * np.random.default_rng(0).normal(size=100_000)
    assert np.mean(norm.cdf(-np.abs(points) / np.sqrt(after))) <= 0.0505


def test_rounds_that_are_forgotten_do_not_settle_anything(clinic: LatentModel, histories: pl.DataFrame) -> None:
    """With a short memory a history is worth its last rows, and rounds to come are forgotten, too."""
    settling = known(Settling.of(clinic.with_memory(0.5)))
    expected, every = np.array([[0.3, 0.0, -9.0]]), np.ones((1, 3), bool)
    many = settling.rounds(expected, every, np.array([2.0]), np.ones((1, 3)))
    # No more than two rounds are ever remembered: 1 + 1/2 + 1/4 + ...
    assert many == settling.rounds(expected, every, np.array([2.0]), np.zeros((1, 3))) == np.inf
    assert known(Settling.of(clinic)).rounds(expected, every, np.array([2]), np.ones((1, 3))) < np.inf
    read = read_histories(histories, known(clinic.schema))
    seen, pulls = _counts(read, 3, 0.5)
    np.testing.assert_allclose(seen, [2 - 0.5 ** (rows - 1) for rows in range(1, 6)])
    np.testing.assert_allclose(
        pulls.sum(axis=1), [*(seen[:4] - 1), seen[4]]
    )  # the last visit of the first four is open
    np.testing.assert_allclose(_counts(read, 3)[1].sum(axis=1), [0, 1, 2, 3, 5])


def test_it_is_not_said_of_an_action_that_is_tried_that_it_is_settled(bandit: LiveBandit) -> None:
    decision = bandit.start("eve").decide({"score": 10.0, "marker": 0.0})
    sure = replace(decision, action="placebo", probability_best={"aspirin": 0.97, "placebo": 0.02, "statin": 0.01})
    said = sentence_of(sure, (0.0, 1.0), {}, 3, 2, 0.0, ())
    assert "it is settled that 'aspirin' is best" in said
    assert "this is settled" in sentence_of(replace(sure, action="aspirin"), (0.0, 1.0), {}, 3, 2, 0.0, ())


@pytest.mark.parametrize(
    ("rounds", "cell", "words"),
    [
        (0.0, "0", "settled"),
        (12.0, "12", "about 12 more rounds would settle it"),
        (np.inf, "> 64", "more than 64 more rounds would be needed to settle it"),
        (None, "-", ""),
    ],
)
def test_rounds_that_are_not_counted_are_not_taken_for_rounds_that_nobody_knows(
    bandit: LiveBandit, rounds: float | None, cell: str, words: str
) -> None:
    decision = bandit.start("eve").decide({"score": 10.0, "marker": 0.0})
    one = _put_together(decision, np.ones(3, bool), Lead(None, {}), (3, 2), rounds, ())
    assert one.rounds_in_words == cell
    assert words in one.sentence
    told = one.to_json()
    assert (told["rounds_to_settle"], told["unsettled_after"]) == {
        "0": (0, None),
        "12": (12, None),
        "> 64": (None, 64),
        "-": (None, None),
    }[cell]


def test_a_choice_between_people_of_whom_all_is_known_is_settled_only_if_it_matters(clinic: LatentModel) -> None:
    """After a million rounds nothing more is learned: then equals stay equals, and a lead is a lead."""
    settling = known(Settling.of(clinic))
    for lead, is_settled in ((0.0, False), (1.0, True)):
        expected = np.array([[lead, 0.0, -9.0]])
        rounds = settling.rounds(expected, np.ones((1, 3), bool), np.array([10**6]), np.full((1, 3), 1e6))
        assert np.isfinite(rounds).all() == is_settled


def test_ruled_out_actions_are_not_recommended_to_whom_they_are_forbidden(
    bandit: LiveBandit, histories: pl.DataFrame
) -> None:
    free = bandit.recommend(histories)
    best = {one.instance: str(one.action) for one in free}
    excluded = histories.with_columns(no=pl.col("patient").replace(best))
    for one in bandit.recommend(excluded, forbidden_column="no"):
        assert one.action != best[str(one.instance)]
        assert one.ruled_out == (best[str(one.instance)],)
        assert one.probability_best[best[str(one.instance)]] == 0
    others = excluded.with_columns(no=pl.lit("aspirin; statin"))
    assert {one.action for one in bandit.recommend(others, forbidden_column="no")} == {"placebo"}
    assert all(one.ahead_of is None and one.rests_on == {} for one in bandit.recommend(others, forbidden_column="no"))
    assert {one.action for one in bandit.recommend(histories, forbidden=["aspirin", "statin"])} == {"placebo"}
    with pytest.raises(SchemaError, match="rules out 'asprin'"):
        bandit.recommend(excluded.with_columns(no=pl.lit("asprin;statin")), forbidden_column="no")
    with pytest.raises(DecisionError, match="no action is left for 'new0'"):
        bandit.recommend(excluded.with_columns(no=pl.lit("aspirin;statin;placebo")), forbidden_column="no")
    with pytest.raises(SchemaError, match="no column 'never'"):
        bandit.recommend(histories, forbidden_column="never")


def test_the_nearest_earlier_people_are_those_whose_mean_contexts_say_the_same(
    bandit: LiveBandit, clinic: LatentModel, histories: pl.DataFrame, earlier: pl.DataFrame
) -> None:
    """With equally many contexts each, the belief by contexts is a linear function of their mean."""
    whole = draw_table(3, 20, seed=4, prefix="q")
    found = bandit.recommend(whole, earlier=earlier)
    schema, theta = known(clinic.schema), np.asarray(CalibratedBelief(clinic).reward.theta)

    def expected(table: pl.DataFrame) -> np.ndarray:
        belief = CalibratedBelief(clinic)
        sums = schema.encode(table).reshape(-1, 20, 2).sum(axis=1)
        shown = sums @ np.asarray(belief.to_basis.matrix).T + 20 * np.asarray(belief.to_basis.shift)
        values = (shown / (20 + np.asarray(belief.prior_precision))) @ theta.T
        return np.asarray(values - values.mean(axis=1, keepdims=True))

    theirs, labels = expected(earlier), earlier["patient"].unique(maintain_order=True).to_list()
    for one, ours in zip(found, expected(whole), strict=True):
        distance = np.sqrt(((theirs - ours) ** 2).mean(axis=1))
        order = np.argsort(distance)[:5]
        assert {near.instance for near in one.nearest} == {labels[i] for i in order}
        nearest = one.nearest[0]
        rows = earlier.filter((pl.col("patient") == nearest.instance) & (pl.col("drug") == "statin"))
        mean, count = nearest.rewards["statin"]
        assert mean == pytest.approx(rows["response"].to_numpy().mean(), rel=1e-5)
        assert count == len(rows)
        assert "nearest earlier people had it" in one.sentence
    assert bandit.recommend(histories)[0].nearest == ()
    for one in bandit.recommend(earlier.head(60), earlier=earlier):
        assert len(one.nearest) == 5
        assert one.instance not in {near.instance for near in one.nearest}


def test_recommendations_say_everything_as_json_and_as_a_table(bandit: LiveBandit, histories: pl.DataFrame) -> None:
    found = bandit.recommend(histories)
    written = json.loads(found.to_json())
    frame = found.to_frame("polars")
    assert [one["instance"] for one in written] == frame["instance"].to_list() == [one.instance for one in found]
    for one, plain, row in zip(found, written, frame.to_dicts(), strict=True):
        assert plain["action"] == row["action"] == one.action
        for action in plain["actions"]:
            label = action["action"]
            assert action["expected_reward"] == row[f"{label}: expected"] == one.expected_reward[label]
            assert (action["low"], action["high"]) == (row[f"{label}: low"], row[f"{label}: high"])
            assert action["low"] < action["expected_reward"] < action["high"]
        assert plain["rests_on"]["contexts"] == row["from contexts"]
        assert repr(one.action) in one.sentence
        assert one.sentence in repr(found)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda table: table.drop("score"), "no column 'score'"),
        (lambda table: table.with_columns(drug=pl.lit("water")), "actions that the schema does not know: 'water'"),
        (lambda table: table.with_columns(patient=pl.lit(None, pl.String)), "lacks the instance in 15 rows"),
        (lambda table: table.with_columns(response=pl.lit(1e30)), "a reward must be a number between"),
        (lambda table: table.with_columns(score=pl.lit("high")), "expected numbers"),
    ],
)
def test_histories_that_can_not_be_are_refused(
    bandit: LiveBandit, histories: pl.DataFrame, spoil: Any, said: str
) -> None:
    with pytest.raises((DecisionError, LogsError), match=said):
        bandit.recommend(spoil(histories))


def test_columns_of_what_is_not_known_yet_may_be_absent(bandit: LiveBandit, histories: pl.DataFrame) -> None:
    bare = bandit.recommend(histories.drop("drug", "response", "visit"))
    empty = bandit.recommend(histories.with_columns(drug=pl.lit(None, pl.String), response=pl.lit(None, pl.Float64)))
    assert bare.to_json() == empty.to_json()
    assert all(one.rewards == 0 for one in bare)


def test_people_in_many_batches_are_decided_for_as_each_would_be_alone(
    bandit: LiveBandit, histories: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = bandit.recommend(histories)
    monkeypatch.setattr(recall, "BATCH", 4)
    copies = [histories.with_columns(patient=pl.col("patient") + f" {copy}") for copy in range(3)]
    together = {one.instance: one for one in bandit.recommend(pl.concat(copies))}
    for one in alone:
        for copy in range(3):
            found = together[f"{one.instance} {copy}"]
            assert dict(found.expected_reward) == pytest.approx(dict(one.expected_reward), abs=1e-4)


def test_the_command_shows_prints_and_writes_what_the_library_says(
    clinic: LatentModel,
    histories: pl.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ilb.cli import run

    def ilb(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["ilb", *arguments])
        return run(), capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # the command sets it
    clinic.save("model")
    histories.write_csv("history.csv")
    found = LiveBandit.on(clinic, "Calibrated").recommend("history.csv")
    call = ("recommend", "model", "history.csv", "--policy", "Calibrated")
    code, printed = ilb(*call, "--json")
    assert (code, json.loads(printed)) == (0, json.loads(found.to_json()))
    code, printed = ilb(*call, "--out", "new.csv")
    assert code == 0
    assert all(str(one.instance) in printed for one in found)
    assert ("Rounds: after so many more" in printed) == any(one.rounds_to_settle for one in found)
    assert pl.read_csv("new.csv")["action"].to_list() == [one.action for one in found]
    code, _ = ilb(*call, "--out", "new.json", "--forbid", "aspirin", "--forbid", "statin")
    assert {one["action"] for one in json.loads(Path("new.json").read_text())} == {"placebo"}


def test_small_tables_are_compiled_for_in_haste_and_programs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ilb.cli.recommend import LARGE, QUICK, compile_for

    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    small.write_text("a")
    large.write_text("a" * LARGE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "7")
    for file, flags in ((large, "--mine"), (tmp_path / "nowhere.csv", f"{QUICK} --mine"), (small, f"{QUICK} --mine")):
        monkeypatch.setenv("XLA_FLAGS", "--mine")
        compile_for(file)
        compile_for(file)
        assert os.environ["XLA_FLAGS"] == flags
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "ilb" / "compiled")
    assert os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "7"
