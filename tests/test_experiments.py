"""Every experiment runs at a tiny size; outcomes are functions of their tasks, and runs can be stopped and resumed."""

import itertools
import json
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure
from scipy import stats

from ilb.environments import Adcb, Plan, Shift, Synthetic
from ilb.environments.adcb.patients import adcb_population
from ilb.errors import IlbError
from ilb.logs import Logs
from ilb.models.latent import LatentModel
from ilb.models.recurrent import RecurrentRegression
from ilb.networks import IdentityEncoder
from ilb.offline import training
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.fit import complete_model
from ilb.offline.scores import FitScores
from ilb.offline.training import describe_recipe, fit_keys, split_each
from ilb_paper.catalogue import EXPERIMENTS
from ilb_paper.catalogue.app_adcb_ate import LatentSampleTask
from ilb_paper.catalogue.fig_synthetic_contextual import StationarySetting
from ilb_paper.catalogue.thm_regret import BoundTask
from ilb_paper.claims import (
    Claim,
    Comparison,
    Judgement,
    combine,
    compare,
    compare_fits,
    high_score,
    less_regret,
    sign_flip_tail,
)
from ilb_paper.experiment import AbstractExperiment, Exhibit, Panel, RegretFigure, ScoreRow, ScoreTable
from ilb_paper.learners import (
    LEARNERS,
    MEAN_CONTEXTS,
    OURS,
    PAPER,
    PAPER_WIDE,
    PLAIN_FIT,
    REGRESSION,
    REGRESSION_SORTED,
    TRUE_ENCODER,
    VAE_RELEASED,
    LatentLearner,
    Lesson,
    RecurrentLearner,
)
from ilb_paper.players import Group, Player
from ilb_paper.plots import DIRECT_FLOOR, Line, PanelGrid, plot_panels
from ilb_paper.rejudge import rejudge, undecided_table
from ilb_paper.report import Earlier, Judged, compare_verdicts, count_verdicts, read_earlier, write_report
from ilb_paper.results import RegretCurve, Results, Size, clustered_error
from ilb_paper.runner import Failure, plan, run
from ilb_paper.settings import AbstractSetting, AdcbSetting, SyntheticSetting, describe_setting
from ilb_paper.store import Store
from ilb_paper.tasks import AbstractTask, FitTask, Outcome, PlayTask, hash_of, kept_rounds, run_task

TINY = Size(0.001)
PAPER_LABELS = Path(__file__).parent / "paper-labels.txt"


ALL = list(EXPERIMENTS.values())


def tasks_of(experiments: Sequence[AbstractExperiment], results: Results) -> list[AbstractTask]:
    return [task for wave in plan(experiments, results) for task in wave]


def made_up(task: AbstractTask) -> pa.Table:
    """An outcome of the right shape without any work: what is drawn and judged does not ask where it comes from."""
    rng = np.random.default_rng(int(hash_of(task), 16) % 2**32)
    if isinstance(task, FitTask):
        scores = {name: rng.uniform(0.5, 1, len(task.seeds)) for name in FitScores._fields}
        errors = {f"{name}_se": np.full(len(task.seeds), 0.01) for name in FitScores._fields}
        if LEARNERS[task.learner].scores_prefixes:
            scores |= {f"{name}_prefixes": scores[name] for name in ("reward_r2", "best_action")}
        return pa.table({"seed": task.seeds, "fit_cpu_seconds": np.ones(len(task.seeds)), **scores, **errors})
    if isinstance(task, PlayTask):
        rounds = kept_rounds(task.horizon)
        shape = (len(task.seeds) * task.instances, len(rounds))
        regret = np.cumsum(rng.exponential(size=shape), axis=1).ravel()
        return pa.table({"round": np.tile(rounds, shape[0]), "regret": regret.astype(np.float32)})
    if isinstance(task, BoundTask):
        ones = np.ones(task.instances)
        return pa.table({"gap": ones / 2, "regret": ones, "regret_se": ones / 10, "bound": 9 * ones, "most": 99 * ones})
    assert isinstance(task, LatentSampleTask)
    return pa.table({"z": rng.uniform(0.05, 0.25, task.instances)})


def fill(store: Store, experiments: Sequence[AbstractExperiment], size: Size) -> Results:
    """Put made-up outcomes where the tasks of these experiments look for theirs; they need not survive a power cut."""
    results = Results(store, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ilb.files.os.fsync", lambda handle: None)
        for task in tasks_of(experiments, results):
            store.put(task, Outcome(made_up(task)))
    return results


class Untrained(Store):
    """A store that does not ask for the models of fits."""

    def __contains__(self, task: AbstractTask) -> bool:
        return self._table_file(task).is_file()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    """A store in which every task of every experiment is done, with made-up numbers."""
    out = tmp_path_factory.mktemp("filled")
    return fill(Untrained(out), ALL, Size(0.02)), out


@pytest.mark.parametrize("label", EXPERIMENTS)
def test_every_experiment_is_shown_and_judged_by_its_own_tasks_alone(
    tmp_path: Path, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ilb_paper.experiment.plot_panels", lambda grid: Figure())  # the report below draws them all
    experiment = EXPERIMENTS[label]
    results = fill(Untrained(tmp_path), [experiment], Size(0.2))
    exhibit = experiment.show(results)
    assert exhibit.figures or exhibit.tables
    for table in exhibit.tables:
        assert all(len(row) == len(table.header) for row in table.rows)
    for claim in experiment.claims:
        judgement = claim.judge(results)
        assert judgement.comparisons
        shown = (*judgement.comparisons, *judgement.contrasts)
        assert all(np.isfinite(comparison.difference) for comparison in shown), claim.name
        assert len(judgement.contrasts) == len(claim.contrast(results)), claim.name
        about_the_papers_encoder = any(re.search(r"LVM(?! \(ours\))", c.says) for c in judgement.comparisons)
        assert bool(judgement.released_width) == about_the_papers_encoder, claim.name
        # Two things that are about equal are compared both ways with the same words.
        said = [comparison.says for comparison in judgement.comparisons if "allowed" not in comparison.says]
        assert len(set(said)) == len(said), claim.name


def test_the_report_is_one_page_with_everything_in_it(filled: tuple[Results, Path]) -> None:
    results, out = filled
    some = [EXPERIMENTS[label] for label in ("tab:test", "fig:nonlinear_reward", "fig:ATE_a", "thm:id_latent")]
    judged = write_report(some, results, out)
    page = (out / "index.html").read_text()
    assert page.count("<svg") == sum(not experiment.is_printed for experiment in some)
    assert not re.search(r'(src|href)="https?://', page)
    assert all(f'id="{experiment.label}"' in page for experiment in some)
    stored = json.loads((out / "reproduction.json").read_text())
    assert [claim["name"] for claim in stored["claims"]] == [j.claim.name for j in judged]
    assert "says nothing about the paper" in page
    assert "<figcaption></figcaption>" not in page
    labels = [experiment.label for experiment in some]
    assert f"This report holds {', '.join(labels)}:" in page
    assert f"Make it again: ilb reproduce {' '.join(labels)} --scale 0.02" in page
    assert stored["labels"] == labels


def test_the_report_says_how_long_its_figures_were_played(filled: tuple[Results, Path], tmp_path: Path) -> None:
    results, _ = filled
    write_report([EXPERIMENTS["fig:synthetic_contextual"]], results, tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "one world (seed 0)" in page
    assert "figures have 4 new instances in each, 100 rounds in fig:synthetic_contextual. All" in page
    write_report([], results, tmp_path)
    assert "200 rounds. All" in (tmp_path / "index.html").read_text()


def test_verdicts_are_counted_in_a_sentence() -> None:
    assert count_verdicts(["holds", "undecided", "holds"]) == "2 claims hold, 1 is undecided."
    assert (
        count_verdicts(["does not hold", "undecided", "undecided", "undecided"])
        == "1 claim does not hold, 3 are undecided."
    )
    assert count_verdicts([]) == "No claim was tested."


def test_a_second_run_computes_nothing(filled: tuple[Results, Path]) -> None:
    results, _ = filled
    asked = []

    class Watcher:
        def started(self, tasks: int, weight: float, stored: int) -> None:
            asked.append((tasks, stored))

        def finished(self, task: AbstractTask, outcome: Outcome) -> None:
            raise AssertionError(task)

    assert run(ALL, results, monitor=Watcher()) == []
    assert asked == [(0, len(tasks_of(ALL, results)))]


CHEAP = (MEAN_CONTEXTS, TRUE_ENCODER, OURS)


@dataclass(frozen=True, kw_only=True)
class Chosen(AbstractExperiment):
    """Some tasks of an experiment, as an experiment."""

    chosen: list[AbstractTask]

    def tasks(self, results: Results) -> list[AbstractTask]:
        return self.chosen

    def show(self, results: Results) -> Exhibit:
        raise NotImplementedError


def cost(task: AbstractTask) -> int:
    """The cheapest tasks come first: they stand for the experiments whose learners are covered by others."""
    if isinstance(task, FitTask):
        return CHEAP.index(task.learner) if task.learner in CHEAP else len(CHEAP)
    return getattr(task, "model", "") != ""


def covering(results: Results) -> dict[str, list[AbstractTask]]:
    """A few tasks of every experiment: together every learner and every kind of task and setting.

    Policies have a conformance suite of their own.
    """
    seen: set[Any] = set()
    chosen: dict[str, list[AbstractTask]] = {}
    for experiment in ALL:
        chosen[experiment.label] = []
        for task in sorted(experiment.tasks(results), key=cost):
            model = getattr(task, "learner", getattr(task, "model", None))
            if model in (PAPER_WIDE, VAE_RELEASED, REGRESSION_SORTED):
                continue  # the same recipes with other numbers
            kinds = {type(task), type(task.setting), experiment.label, model}
            if not kinds <= seen:
                seen |= kinds
                chosen[experiment.label].append(task)
    return chosen


@pytest.fixture(scope="module")
def covered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, dict[str, list[AbstractTask]], list[Failure]]:
    results = Results(Store(tmp_path_factory.mktemp("covered")), TINY)
    chosen = covering(results)
    experiments = [Chosen(label=label, title=label, chosen=tasks) for label, tasks in chosen.items()]
    failures = run(experiments, results)
    return results, chosen, failures


@pytest.mark.parametrize("label", EXPERIMENTS)
def test_tasks_of_every_experiment_run_at_a_tiny_size(
    covered: tuple[Results, dict[str, list[AbstractTask]], list[Failure]], label: str
) -> None:
    results, chosen, failures = covered
    assert chosen[label]
    assert not failures, "\n".join(f"{failure.task}: {failure.error}" for failure in failures)
    for task in chosen[label]:
        table = results.store.table(task)
        assert len(table)
        if isinstance(task, PlayTask):
            # What is made up above has the columns and the order of what is real.
            rounds = kept_rounds(task.horizon)
            regret = table["regret"].to_numpy().reshape(-1, len(rounds))
            assert np.array_equal(table["round"].to_numpy()[: len(rounds)], rounds)
            assert np.all(np.diff(regret, axis=1) >= -1e-4)
            assert set(made_up(task).column_names) <= set(table.column_names)
        else:
            assert set(made_up(task).column_names) <= set(table.column_names)


def test_claims_have_names_of_their_own_and_are_many() -> None:
    names = [claim.name for experiment in EXPERIMENTS.values() for claim in experiment.claims]
    assert len(set(names)) == len(names) >= 18


def test_every_figure_and_table_of_results_in_the_paper_is_in_the_catalogue() -> None:
    labels = {line for line in PAPER_LABELS.read_text().splitlines() if not line.startswith("#")}
    shown = {label for label in labels if label.startswith(("fig:", "tab:", "table:", "OOD"))}
    drawings = {"fig:ilb-plan", "fig:scm", "fig:cpg-bias", "tab:notation", "tab:comparison"}
    panels = {"fig:noise-reward-a", "fig:noise-reward-b", "fig:noise-reward-c"}
    assert drawings | panels <= shown
    assert shown - drawings - panels <= set(EXPERIMENTS)
    ours = {"table:fit_results-adcb"}  # the second half of a long table
    assert set(EXPERIMENTS) - ours <= labels


# The smallest experiment: a setting and two players that need no fit.

SMALL = RegretFigure(
    label="small",
    title="two players",
    panels=(Panel("standard", SyntheticSetting()),),
    groups=(Group("", (Player("MAB"), Player("CPG", "oracle"))),),
)


def outcome_tables(results: Results) -> list[pa.Table]:
    return [results.store.table(task) for wave in plan([SMALL], results) for task in wave]


def test_jobs_and_a_resume_change_no_number(tmp_path: Path) -> None:
    whole, pieces = Results(Store(tmp_path / "a"), TINY), Results(Store(tmp_path / "b"), TINY)
    assert not run([SMALL], whole, jobs=1)
    first = replace(SMALL, groups=(Group("", (Player("MAB"),)),))
    assert not run([first], pieces, jobs=1)
    assert not run([SMALL], pieces, jobs=2)
    for one, other in zip(outcome_tables(whole), outcome_tables(pieces), strict=True):
        assert one.equals(other)


def test_an_interrupted_run_keeps_what_was_done(tmp_path: Path) -> None:
    results = Results(Store(tmp_path), TINY)

    class Impatient:
        def started(self, tasks: int, weight: float, stored: int) -> None:
            self.tasks = tasks

        def finished(self, task: AbstractTask, outcome: Outcome) -> None:
            raise KeyboardInterrupt

    watcher = Impatient()
    with pytest.raises(KeyboardInterrupt):
        run([SMALL], results, monitor=watcher)
    stored = [task for wave in plan([SMALL], results) for task in wave if task in results.store]
    assert len(stored) == 1 < watcher.tasks


def test_a_failing_task_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    broken = replace(SMALL, groups=(Group("", (Player("MAB"), Player("CPG", "oracle"), Player("no such", "oracle"))),))
    results = Results(Store(tmp_path), TINY)
    failures = run([broken], results)
    assert [getattr(failure.task, "policy", None) for failure in failures] == ["no such"]
    assert len([task for wave in plan([broken], results) for task in wave if task in results.store]) == 2


def test_an_unknown_backend_is_named(tmp_path: Path) -> None:
    with pytest.raises(IlbError, match="loky, dask, ray"):
        run([SMALL], Results(Store(tmp_path), TINY), backend="threads")


def test_a_task_is_known_by_its_content() -> None:
    task = PlayTask(SyntheticSetting(), "MAB", "", (0,), 3, 12)
    assert hash_of(task) == hash_of(PlayTask(SyntheticSetting(), "MAB", "", (0,), 3, 12))
    others = [
        PlayTask(SyntheticSetting(Synthetic(actions=10)), "MAB", "", (0,), 3, 12),
        PlayTask(SyntheticSetting(), "LinUCB", "", (0,), 3, 12),
        PlayTask(AdcbSetting(), "MAB", "", (0,), 3, 12),
        PlayTask(SyntheticSetting(), "MAB", "", (1,), 3, 12),
    ]
    assert len({hash_of(other) for other in [task, *others]}) == 5


def test_shifted_settings_share_their_fits() -> None:
    task = PlayTask(SyntheticSetting(playing=(Shift(2.0),)), "CPG", OURS, (0,), 3, 12, 1.0, (0,))
    assert task.needs() == (FitTask(SyntheticSetting(), OURS, (0,), 1.0),)


def test_rewards_are_refitted_on_the_encoder_of_the_same_contexts_with_the_same_outcome() -> None:
    task = FitTask(
        SyntheticSetting(Synthetic(actions=4, reward_std=1.0), Plan(instances=12, length=25, test_instances=12)),
        OURS,
        (0, 1),
        0.01,
    )
    standard = task.shortcut()
    assert standard is not None
    assert standard.setting == SyntheticSetting(plan=Plan(instances=12, length=25, test_instances=12))
    assert standard.shortcut() is None
    assert replace(task, learner=REGRESSION).shortcut() is None  # that one does see rewards
    alone, first = run_task(task, []), run_task(standard, [])  # keeps warnings of so few rows
    quick = run_task(task, [first])
    assert quick.table.drop_columns(["fit_cpu_seconds"]).equals(alone.table.drop_columns(["fit_cpu_seconds"]))
    for one, other in zip(jax.tree.leaves(quick.models), jax.tree.leaves(alone.models), strict=True):
        np.testing.assert_array_equal(one, other)
    costs = [np.asarray(outcome.table["fit_cpu_seconds"]) for outcome in (quick, first)]
    assert (costs[0] > costs[1]).all()  # the encoder's share is counted


def test_a_shortcut_is_run_before_and_first_blocks_come_first() -> None:
    rows = (ScoreRow(SyntheticSetting(Synthetic(actions=10)), PAPER, ("",)), ScoreRow(SyntheticSetting(), PAPER, ("",)))
    table = ScoreTable(label="t", title="", header=("",), rows=rows)
    (first, second) = plan([table], Results(Store(Path("unused")), Size()))
    assert {task.setting for task in first} == {SyntheticSetting()}
    assert {task.setting for task in second} == {SyntheticSetting(Synthetic(actions=10))}
    fits: list[Any] = list(first)
    assert [task.seeds[0] for task in fits] == [0, 5]


def test_players_are_paired_by_world_while_a_run_is_under_way(tmp_path: Path) -> None:
    results = Results(Store(tmp_path), Size())
    ahead, behind = (results.play_tasks(SyntheticSetting(), Player(name)) for name in ("MAB", "LinUCB"))
    for task in (*ahead, behind[0]):
        results.store.put(task, Outcome(made_up(task)))
    assert results.regret_at(SyntheticSetting(), Player("MAB"), 1.0).shape == (10, 200)
    comparison = less_regret(results, SyntheticSetting(), Player("MAB"), Player("LinUCB"))
    played = [results.regret_at(SyntheticSetting(), Player(name), 1.0)[:5] for name in ("MAB", "LinUCB")]
    assert comparison.difference == pytest.approx((played[1] - played[0]).mean())


def test_a_stored_outcome_is_read_back_with_its_story(tmp_path: Path) -> None:
    store, task = Store(tmp_path), PlayTask(SyntheticSetting(), "MAB", "", (0,), 3, 12)
    assert task not in store
    store.put(task, Outcome(pa.table({"regret": [1.0, 2.0]}), (), 1.5, ("careful",)))
    assert store.table(task).column("regret").to_pylist() == [1.0, 2.0]
    about = store.about(task)
    assert about["cpu_seconds"] == 1.5
    assert about["warnings"] == ["careful"]
    assert about["content"]["policy"] == "MAB"


@pytest.mark.parametrize("learner", [REGRESSION, REGRESSION_SORTED])
def test_every_recurrent_learner_is_read_back(tmp_path: Path, small_network: RecurrentRegression, learner: str) -> None:
    store, task = Store(tmp_path), FitTask(SyntheticSetting(), learner, (0,))
    store.put(task, Outcome(pa.table({"seed": [0]}), (small_network,)))
    (network,) = store.get(task).models
    assert isinstance(network, RecurrentRegression)


def test_a_changed_recipe_is_another_task(monkeypatch: pytest.MonkeyPatch) -> None:
    task = FitTask(SyntheticSetting(), OURS, (0,))
    before = hash_of(task)
    hash_of.cache_clear()
    monkeypatch.setitem(LEARNERS, OURS, LatentLearner(lambda setting, effort: TiedRecipe(width=2)))
    play = PlayTask(SyntheticSetting(), "CPG", OURS, (0,), 3, 12, 1.0, (0,))
    assert hash_of(task) != before
    changed = hash_of(play)
    hash_of.cache_clear()
    monkeypatch.undo()
    assert hash_of(task) == before
    assert hash_of(play) != changed


def lengths_of(described: dict[str, Any]) -> list[int]:
    """Find the steps and epochs of every training in a described recipe."""
    found = [value for key, value in described.items() if key in ("steps", "epochs")]
    return found + [n for part in described.values() if isinstance(part, dict) for n in lengths_of(part)]


@pytest.mark.parametrize("learner", [name for name in LEARNERS if name not in (MEAN_CONTEXTS, TRUE_ENCODER, PLAIN_FIT)])
@pytest.mark.parametrize(
    "setting", [SyntheticSetting(Synthetic(reward="leaky")), SyntheticSetting(Synthetic(layers=4)), AdcbSetting()]
)
def test_every_training_of_a_learner_takes_the_share_of_its_steps_that_it_is_given(
    learner: str, setting: AbstractSetting
) -> None:
    whole, tenth = (
        [n for recipe in LEARNERS[learner].recipes(setting, effort) for n in lengths_of(describe_recipe(recipe))]
        for effort in (1.0, 0.1)
    )
    assert whole
    assert tenth == [round(0.1 * n) for n in whole]


def test_an_interrupted_fit_is_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_advance", interrupted)
    with pytest.raises(KeyboardInterrupt), warnings.catch_warnings():
        run_task(FitTask(SyntheticSetting(plan=Plan(instances=12, length=25, test_instances=12)), OURS, (0,), 0.01), ())


def test_a_damaged_outcome_is_computed_anew(tmp_path: Path) -> None:
    results = Results(Store(tmp_path), TINY)
    run([SMALL], results)
    task = tasks_of([SMALL], results)[0]
    file = results.store._table_file(task)
    whole = results.store.table(task)
    file.write_bytes(file.read_bytes()[:-40])
    assert task not in results.store
    assert not run([SMALL], results)
    assert results.store.table(task).equals(whole)


def flip_the_middle(file: Path) -> None:
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(255 - byte for byte in content[middle : middle + 8])
    file.write_bytes(content)


def test_a_table_with_flipped_bytes_is_not_stored(tmp_path: Path) -> None:
    store, task = Store(tmp_path), PlayTask(SyntheticSetting(), "MAB", "", (0,), 50, 2000)
    store.put(task, Outcome(made_up(task)))
    file = store._table_file(task)
    assert task in store
    flip_the_middle(file)
    assert task not in store
    with pytest.raises(IlbError, match=rf"{file.name}.*computed anew"):
        store.table(task)
    store.put(task, Outcome(made_up(task)))
    assert task in store
    assert store.table(task).equals(made_up(task))


def test_a_table_without_checksums_is_stored_all_the_same(tmp_path: Path) -> None:
    store, task = Store(tmp_path), PlayTask(SyntheticSetting(), "MAB", "", (0,), 3, 12)
    store.put(task, Outcome(made_up(task)))
    pq.write_table(pq.read_table(store._table_file(task)), store._table_file(task), compression="zstd")
    assert task in store


@pytest.fixture
def fitted(tmp_path: Path) -> tuple[Store, FitTask, Path]:
    """A store with one fit: its model is the true one."""
    store, task = Store(tmp_path), FitTask(SyntheticSetting(), OURS, (0,))
    store.put(task, Outcome(made_up(task), (SyntheticSetting().oracle(0),)))
    assert task in store
    return store, task, store._models_directory(task) / "0"


def test_a_fit_whose_arrays_are_damaged_is_not_stored(fitted: tuple[Store, FitTask, Path]) -> None:
    store, task, model = fitted
    flip_the_middle(next(model.glob("*.safetensors")))
    assert task not in store
    with pytest.raises(IlbError, match="computed anew"):
        store.get(task)


def test_a_fit_that_cannot_be_loaded_is_set_aside(fitted: tuple[Store, FitTask, Path]) -> None:
    store, task, model = fitted
    manifest = model / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema": null', '"schema": "what"'))
    assert task in store  # its arrays are whole
    with pytest.raises(IlbError, match="computed anew"):
        store.get(task)
    assert task not in store


def test_no_fit_starts_from_the_keys_of_its_world() -> None:
    def plain(keys: Iterable[PRNGKeyArray]) -> set[tuple[int, ...]]:
        return {tuple(np.asarray(jr.key_data(key)).ravel().tolist()) for key in keys}

    for seed in range(3):
        world = plain(jr.fold_in(jr.key(seed), stream) for stream in range(100))
        fits = plain([fit_keys([seed]), *split_each(fit_keys([seed]), 8)])
        assert not world & fits


def test_warnings_of_a_task_are_kept_and_not_raised() -> None:
    outcome = run_task(
        FitTask(
            SyntheticSetting(Synthetic(actions=50), Plan(instances=12, length=25, test_instances=12)), OURS, (0,), 0.01
        ),
        (),
    )
    assert any("RareActionWarning" in text for text in outcome.warnings)


def test_rounds_are_kept_on_a_log_scale_with_the_marked_ones() -> None:
    rounds = kept_rounds(2000)
    assert {1, 20, 100, 500, 1000, 2000} <= set(rounds.tolist())
    assert len(rounds) < 60
    assert kept_rounds(12)[-1] == 12


def test_clustered_errors_are_those_of_worlds_where_worlds_differ() -> None:
    rng = np.random.default_rng(0)
    same = rng.normal(size=(5, 200))
    error, _ = clustered_error(same)
    assert error == pytest.approx(max(same.std(ddof=1) / np.sqrt(1000), same.mean(axis=1).std(ddof=1) / np.sqrt(5)))
    apart = same + 10 * rng.normal(size=(5, 1))
    error, freedom = clustered_error(apart)
    assert error == pytest.approx(apart.mean(axis=1).std(ddof=1) / np.sqrt(5))
    assert freedom == 4


def test_verdicts_need_zero_outside_of_the_interval() -> None:
    assert Comparison("", 2.1, 1.0).verdict() == "holds"
    assert Comparison("", 1.9, 1.0).verdict() == "undecided"
    assert Comparison("", -2.1, 1.0).verdict() == "does not hold"
    assert Comparison("", 2.7, 1.0, freedom=4).verdict() == "undecided"  # the quantile of t is 2.776
    assert Comparison("", 2.8, 1.0, freedom=4).verdict() == "holds"
    assert Comparison("", 5.0, float("nan")).verdict() == "undecided"
    for_it, open_, against = (Comparison("", difference, 1.0) for difference in (9.0, 0.0, -2.1))
    assert combine([for_it, for_it]) == "holds"
    assert combine([for_it, open_]) == "undecided"
    assert combine([against]) == "does not hold"
    assert combine([]) == "undecided"


def test_one_of_many_comparisons_against_a_claim_must_be_clear() -> None:
    for_it, against, clearly = (Comparison("", difference, 1.0) for difference in (9.0, -2.7, -2.9))
    assert combine([*[for_it] * 9, against]) == "undecided"  # among ten the normal quantile is 2.807
    assert combine([*[for_it] * 9, clearly]) == "does not hold"
    draws = np.random.default_rng(0).normal(size=(400, 10))
    wrong = [combine([Comparison("", float(value), 1.0) for value in row]) == "does not hold" for row in draws]
    assert np.mean(wrong) < 0.05  # 0.025 are expected; without a correction it would be 0.22


def test_a_contrast_is_shown_and_does_not_count(tmp_path: Path) -> None:
    evidence, against = Comparison("one", 1.0, 0.1), Comparison("other", -9.0, 0.1)
    results = Results(Store(tmp_path), TINY)
    claim = Claim("name", "where", "says", lambda r: [evidence], contrast=lambda r: [against])
    assert claim.judge(results) == Judgement((evidence,), (), (against,))
    assert claim.judge(results).verdict == "holds"
    lacking = replace(
        claim, contrast=lambda r: [less_regret(r, SyntheticSetting(), Player("MAB"), Player("CPG", "oracle"))]
    )
    assert lacking.judge(results) == Judgement((evidence,), (), ())
    experiment = replace(SMALL, claims=(claim,))
    write_report([experiment], fill(Untrained(tmp_path), [experiment], TINY), tmp_path)
    assert "for contrast, does not hold: other: -9 ± 0.1" in (tmp_path / "index.html").read_text()
    assert json.loads((tmp_path / "reproduction.json").read_text())["claims"][0]["contrasts"][0]["says"] == "other"


def test_a_claim_whose_tasks_were_not_run_is_named_as_not_tested(tmp_path: Path) -> None:
    done = Claim("done", "where", "says done", lambda r: [Comparison("one", 1.0, 0.1)])
    players = Player("MAB"), Player("CPG", "oracle")
    waiting = Claim("waiting", "where", "says waiting", lambda r: [less_regret(r, SyntheticSetting(), *players)])
    write_report([replace(SMALL, claims=(done, waiting))], Results(Store(tmp_path), TINY), tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "Not tested, because tasks behind them were not run: 1 claim (&#x27;waiting&#x27;)." in page
    assert f"<td>not tested</td><td>says waiting</td><td>{SMALL.label}</td>" in page
    stored = json.loads((tmp_path / "reproduction.json").read_text())
    assert [claim["name"] for claim in stored["claims"]] == ["done"]
    assert stored["not_tested"] == [{"name": "waiting", "label": SMALL.label, "says": "says waiting"}]


def test_what_is_so_by_construction_and_what_is_ours_is_shown_and_not_counted(tmp_path: Path) -> None:
    evidence = [Comparison("one", 1.0, 0.1)]
    paper, sure, own = (Claim(name, "where", f"says {name}", lambda r: evidence) for name in ("paper", "sure", "own"))
    claims = (paper, replace(sure, by_construction="it is built in"), replace(own, ours=True))
    experiment = replace(SMALL, claims=claims)
    write_report([experiment], fill(Untrained(tmp_path), [experiment], TINY), tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "<p>1 claim holds.</p>" in page
    assert "Does not count: it is built in" in page
    assert page.count("Holds (not counted):") == 2
    stored = json.loads((tmp_path / "reproduction.json").read_text())["claims"]
    assert [claim["counts"] for claim in stored] == [True, False, False]
    assert [claim["by_construction"] for claim in stored] == ["", "it is built in", ""]


def test_claims_about_the_papers_encoder_are_shown_at_both_widths(tmp_path: Path) -> None:
    results = Results(Untrained(tmp_path), Size())
    for learner, score in ((PAPER, 0.8), (PAPER_WIDE, 0.9), (TRUE_ENCODER, 0.85)):
        for task in results.fit_tasks(SyntheticSetting(), learner):
            rng = np.random.default_rng(task.seeds[0])
            results.store.put(task, Outcome(pa.table({"mcc": score + 0.001 * rng.normal(size=len(task.seeds))})))
    setting = SyntheticSetting()
    claim = Claim("c", "", "", lambda r: [high_score(r, "mcc", setting, PAPER, 0.85, f"MCC of {r.learner(PAPER)}")])
    judgement = claim.judge(results)
    assert judgement.verdict == "does not hold"
    (wide,) = judgement.released_width
    assert wide.says == f"MCC of {PAPER_WIDE}"
    assert wide.verdict() == "holds"
    elsewhere = replace(claim, evidence=lambda r: [high_score(r, "mcc", SyntheticSetting(), TRUE_ENCODER, 0.85, "")])
    assert elsewhere.judge(results).released_width == ()


def test_sign_flips_are_counted_as_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 9):
        worlds = rng.normal(0.5, 1, count)
        flipped = [np.dot(signs, worlds) for signs in itertools.product((-1, 1), repeat=count)]
        assert sign_flip_tail(tuple(worlds)) == pytest.approx(np.mean(np.array(flipped) >= worlds.sum() - 1e-12))
    assert sign_flip_tail((1.0,) * 10) == 2**-10
    assert sign_flip_tail((0.0,) * 10) == 1.0
    many = tuple(
        rng.normal(0.4, 1, 20)
    )  # beyond what is enumerated: the share among random flips is close to the whole
    flips = rng.choice([-1, 1], size=(200_000, 20)) @ np.array(many)
    assert sign_flip_tail(many) == pytest.approx(np.mean(flips >= sum(many)), abs=0.015)


def verdicts_on(draws: np.ndarray) -> np.ndarray:
    return np.array([compare_fits("", row).verdict() for row in draws])


def test_heavy_tails_are_no_reason_to_err_more_often_than_promised() -> None:
    draws = np.random.default_rng(0).standard_t(1.5, size=(4000, 10))
    flips = np.mean([sign_flip_tail(tuple(row)) <= 0.025 for row in draws])
    assert flips == pytest.approx(25 / 1024, abs=0.008)  # exact for symmetric differences; three standard errors
    verdicts = verdicts_on(draws)
    assert np.mean(verdicts == "holds") < 0.025
    assert np.mean(verdicts == "does not hold") < 0.025


def test_skewed_differences_deceive_both_rules_as_the_docstring_says() -> None:
    draws = np.random.default_rng(0).exponential(size=(4000, 10)) - 1
    verdicts = verdicts_on(draws)
    assert np.mean(verdicts == "does not hold") == pytest.approx(0.09, abs=0.015)
    assert np.mean(verdicts == "holds") < 0.01
    alone = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / np.sqrt(10)) < stats.t.ppf(0.025, 9)
    assert np.mean(verdicts == "does not hold") <= alone.mean()


def test_both_rules_must_agree() -> None:
    one_world_carries_all = np.array([30.0, -1, -1, 2, 1, -2, 1, 0.5, -0.5, 1])
    clear = np.arange(1.0, 11.0)
    assert compare_fits("", clear).verdict() == "holds"
    assert compare_fits("", -clear).verdict() == "does not hold"
    assert compare_fits("", one_world_carries_all).verdict() == "undecided"
    # Nine of ten worlds are clearly positive: t decides, flips agree; with their signs mixed neither does.
    steady = Comparison("", 5.0, 1.0, 9.0)
    assert steady.verdict() == "holds"
    assert steady._replace(worlds=(30.0, 20.0, *(-0.1,) * 8)).verdict() == "undecided"
    assert steady._replace(worlds=(5.0,) * 5).verdict() == "undecided"  # too few
    assert steady._replace(worlds=(5.0,) * 6).verdict() == "holds"
    # Among 40 comparisons a level is asked for that ten worlds can't reach: then all must be on one side.
    against = Comparison("", -5.0, 0.5, 9.0, (-5.0,) * 10)
    assert against.verdict(among=40) == "does not hold"
    assert against._replace(worlds=(*(-5.0,) * 9, 0.1)).verdict(among=40) == "undecided"


def test_worlds_behind_every_comparison_are_kept(tmp_path: Path) -> None:
    results = Results(Store(tmp_path), Size(0.2))
    tables = {}
    for player in (Player("MAB"), Player("CPG", "oracle")):
        (task,) = results.play_tasks(SyntheticSetting(), player)
        results.store.put(task, Outcome(made_up(task)))
        tables[player.policy] = made_up(task)["regret"].to_numpy().reshape(2, task.instances, -1)[..., -1]
    claim = Claim("c", "", "", lambda r: [less_regret(r, SyntheticSetting(), Player("CPG", "oracle"), Player("MAB"))])
    experiment = replace(SMALL, claims=(claim,))
    write_report([experiment], results, tmp_path)
    (stored,) = json.loads((tmp_path / "reproduction.json").read_text())["claims"][0]["comparisons"]
    by_hand = (tables["MAB"].astype(float) - tables["CPG"]).mean(axis=1)
    assert stored["worlds"] == pytest.approx(by_hand)
    assert stored["difference"] == pytest.approx(by_hand.mean())


def test_judging_a_report_anew_by_the_same_rules_changes_nothing(filled: tuple[Results, Path], tmp_path: Path) -> None:
    results, _ = filled
    some = [EXPERIMENTS[label] for label in ("tab:test", "fig:nonlinear_reward", "thm:id_latent", "fig:ATE_a")]
    judged = write_report(some, results, tmp_path)
    files = [tmp_path / name for name in ("reproduction.json", "index.html")]
    before = [file.read_text() for file in files]
    again = rejudge(files[0])
    assert [file.read_text() for file in files] == before
    assert repr([j.judgement for j in again]) == repr([j.judgement for j in judged])  # NaN differs from itself


def test_a_page_that_the_report_did_not_write_is_refused_and_nothing_is_changed(
    filled: tuple[Results, Path], tmp_path: Path
) -> None:
    write_report([EXPERIMENTS["fig:ATE_a"]], filled[0], tmp_path)
    page, file = tmp_path / "index.html", tmp_path / "reproduction.json"
    page.write_text(page.read_text().replace("<nav>", "<div>"))
    file.write_text(file.read_text().replace('"undecided"', '"holds"'))
    before = page.read_text(), file.read_text()
    with pytest.raises(IlbError, match="not one of `ilb reproduce`"):
        rejudge(file)
    assert (page.read_text(), file.read_text()) == before


COMMITTED = Path(__file__).parents[1] / "docs" / "results"


def test_the_committed_report_and_its_page_say_what_its_comparisons_say(tmp_path: Path) -> None:
    shutil.copytree(COMMITTED / "reproduction", tmp_path / "reproduction")
    files = [tmp_path / "reproduction" / name for name in ("reproduction.json", "index.html")]
    before = [file.read_text() for file in files]
    judged = rejudge(files[0])
    assert [file.read_text() for file in files] == before
    documented = (COMMITTED / "README.md").read_text()
    counts = Counter(j.judgement.verdict for j in judged if j.claim.counts)
    assert (
        f"**{counts['holds']} hold, {counts['undecided']} are undecided and {counts['does not hold']} do not hold**"
        in documented
    )
    table, leaning = undecided_table(judged).split("\n\n")
    assert table in documented
    assert leaning in documented


def test_sorted_histories_hold_the_same_rows_in_the_order_of_actions() -> None:
    logs = SyntheticSetting(plan=Plan(instances=5, length=30)).record(0).training.logs
    learner = LEARNERS[REGRESSION_SORTED]
    assert isinstance(learner, RecurrentLearner)
    histories = learner.histories(logs)
    assert not np.array_equal(histories.action, logs.action)
    for number in range(logs.instances):
        (before, after) = (
            np.column_stack([part.action, part.reward, part.context])
            for part in (logs.select([number]), histories.select([number]))
        )
        assert np.all(np.diff(after[:, 0]) >= 0)
        np.testing.assert_array_equal(after[np.lexsort(after.T)], before[np.lexsort(before.T)])


def test_a_single_world_or_fit_decides_nothing() -> None:
    values = np.random.default_rng(0).normal(5, 1, size=(1, 200))
    alone = compare("it", values)
    assert alone.standard_error == pytest.approx(values.std(ddof=1) / np.sqrt(200))  # for the band
    assert alone.verdict() == "undecided"
    assert "one world" in str(alone)
    assert compare("it", values.reshape(5, 40)).verdict() == "undecided"
    assert "over 5 worlds, which decide nothing" in str(compare("it", values.reshape(5, 40)))
    assert compare("it", values.reshape(10, 20)).verdict() == "holds"
    fit = compare_fits("it", np.array([5.0]))
    assert fit.verdict() == "undecided"
    assert str(fit) == "it: +5 (one fit: no error)"
    assert str(compare_fits("it", np.array([5.0, 5.1] * 4))) == "it: +5.05 ± 0.019, sign flips 0.0039"


@pytest.mark.parametrize(("scale", "verdict"), [(0.001, "undecided"), (1.0, "holds")])
def test_average_effects_need_patients_enough(tmp_path: Path, scale: float, verdict: str) -> None:
    claim, _ = EXPERIMENTS["fig:ATE_a"].claims
    results = Results(Store(tmp_path), Size(scale))
    (task,) = EXPERIMENTS["fig:ATE_a"].tasks(results)
    assert isinstance(task, LatentSampleTask)
    population = adcb_population(everybody_married=False)
    mean = float(population.z_weights @ population.z_means)
    z = np.random.default_rng(0).normal(mean, 0.05, task.instances)
    results.store.put(task, Outcome(pa.table({"z": z})))
    judgement = claim.judge(results)
    assert judgement.verdict == verdict
    assert all("treatment 0" not in c.says and c.standard_error > 0 for c in judgement.comparisons)


def test_a_bound_that_says_nothing_is_said_to(tmp_path: Path) -> None:
    (claim,) = EXPERIMENTS["thm:regret"].claims
    results = Results(Store(tmp_path), TINY)
    for task in EXPERIMENTS["thm:regret"].tasks(results):
        table = made_up(task)
        loose = pa.array(2.0 * table["most"].to_numpy())
        results.store.put(task, Outcome(table.set_column(table.column_names.index("bound"), "bound", loose)))
    judgement = claim.judge(results)
    assert judgement.verdict == "undecided"
    assert len(judgement.comparisons) == 3
    assert all("none of 3 instances" in str(c) and "nan" not in str(c) for c in judgement.comparisons)
    write_report([EXPERIMENTS["thm:regret"]], results, tmp_path)  # as JSON, too


def test_panels_line_up_and_lines_begin_above_the_floor() -> None:
    rounds = np.array([1, 10, 100])
    low, high = np.array([0.01, 0.04, 0.2]), np.array([1.0, 2.0, 3.0])
    curve = RegretCurve(rounds, low, low / 10, low)
    short, long = (Line(Player(name), curve) for name in ("MAB", "a policy with quite a long name"))
    higher = long._replace(curve=curve._replace(mean=high))
    figure = plot_panels(PanelGrid([[[short], [short]], [[long], [higher]]], ["a", "b"], ["", "c"]))
    above, below = np.array(figure.axes).reshape(2, 2)
    for one, other in zip(above, below, strict=True):
        assert (one.get_position().x0, one.get_position().x1) == pytest.approx(
            (other.get_position().x0, other.get_position().x1)
        )
    drawn = above[0].lines[0].get_ydata()
    assert np.isnan(drawn[:2]).all()
    assert drawn[2] == 0.2 > DIRECT_FLOOR


def test_players_are_compared_on_the_same_instances(tmp_path: Path) -> None:
    results = Results(Store(tmp_path), Size(0.005))
    run([SMALL], results)
    better, worse = Player("CPG", "oracle"), Player("MAB")
    claim = Claim("c", "here", "says", lambda r: [less_regret(r, SyntheticSetting(), better, worse)])
    (comparison,) = claim.judge(results).comparisons
    by_hand = results.regret_at(SyntheticSetting(), worse, 1.0) - results.regret_at(SyntheticSetting(), better, 1.0)
    assert comparison.difference == pytest.approx(by_hand.mean())
    assert comparison.difference > 0


def test_sizes_shrink_and_refuse_nonsense() -> None:
    assert Size().blocks == (tuple(range(5)), tuple(range(5, 10)))
    assert (Size(0.2).instances, Size(0.2).horizon(), Size(0.2).effort) == (40, 2000, 1.0)
    assert Size(0.02).horizon() == 200
    with pytest.raises(IlbError, match="--scale"):
        Size(0.0)
    assert Size(first_seed=10).blocks == (tuple(range(10, 15)), tuple(range(15, 20)))
    for wrong in (-1, 40_000):
        with pytest.raises(IlbError, match=f"--first-seed must be between 0 and 30,000; got {wrong}"):
            Size(first_seed=wrong)


def test_other_worlds_share_no_task_with_the_first_ones(tmp_path: Path) -> None:
    first, others = (tasks_of(ALL, Results(Store(tmp_path), Size(0.02, first_seed=seed))) for seed in (0, 10))
    assert len(first) == len(others)
    assert not set(first) & set(others)


def test_verdicts_of_another_run_stand_beside(tmp_path: Path) -> None:
    label = "fig:nonlinear_reward"
    before, now = tmp_path / "before", tmp_path / "now"
    for out, seed, earlier in ((before, 0, None), (now, 10, read_earlier)):
        results = fill(Untrained(out), [EXPERIMENTS[label]], Size(0.6, first_seed=seed))
        beside = None if earlier is None else earlier(before / "reproduction.json")
        judged = write_report([EXPERIMENTS[label]], results, out, earlier=beside)
    stored = json.loads((now / "reproduction.json").read_text())
    assert stored["first_seed"] == 10
    page = (now / "index.html").read_text()
    assert "verdict, seeds 10 to 15" in page
    assert "verdict, seeds 0 to 5" in page
    assert f"of {len([j for j in judged if j.claim.counts])} claims that count and were tested in both runs" in page
    assert "--first-seed 10" in page


def test_claims_that_changed_sides_are_named() -> None:
    claims = [Claim(name, "", "", lambda r: []) for name in "abc"]
    for_it, against = (Judgement((Comparison("", sign * 5.0, 0.5, 9.0, (sign * 5.0,) * 10),)) for sign in (1, -1))
    judged = [Judged("x", *pair) for pair in zip(claims, (for_it, against, for_it), strict=True)]
    earlier = Earlier("seeds 0 to 9", {"a": "holds", "b": "holds", "c": "undecided"})
    said = compare_verdicts(judged, earlier)
    assert "of 3 claims that count and were tested in both runs, 1 have the same verdict" in said
    assert "1 claim changed sides ('b')" in said


@pytest.mark.parametrize("text", ["", "[]", '{"claims": 3}', '{"claims": [], "scale": "x"}'])
def test_what_is_no_report_can_not_stand_beside(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(IlbError, match=r"is not a reproduction\.json that `ilb reproduce` wrote"):
        read_earlier(tmp_path / "other.json")
    with pytest.raises(IlbError, match=r"--beside .*absent.json can't be read"):
        read_earlier(tmp_path / "absent.json")


@pytest.mark.filterwarnings("ignore::ilb.errors.RareActionWarning")
def test_a_plain_fit_is_told_neither_recipe_nor_dimension(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def note(logs: Logs, **given: Any) -> LatentModel:
        asked.append(given)
        return complete_model(IdentityEncoder(), logs)

    monkeypatch.setattr("ilb_paper.learners.fit", note)
    recorded = [SyntheticSetting().shrunk(0.01).record(seed) for seed in (3, 4)]
    for effort in (1.0, 0.1):
        LEARNERS[PLAIN_FIT].train(Lesson(SyntheticSetting(), recorded, (3, 4), effort))
    assert asked[:2] == [{"seed": 3}, {"seed": 4}]
    assert [set(given) for given in asked[2:]] == [{"seed", "latent_dim", "recipe", "reward"}] * 2


def test_settings_are_named_by_what_is_special() -> None:
    assert describe_setting(StationarySetting()) == "Stationary()"
    assert describe_setting(AdcbSetting(Adcb(rewards="released"))) == "Adcb(rewards='released')"
