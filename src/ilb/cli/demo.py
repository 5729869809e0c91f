"""`ilb demo`: from records of earlier people to decisions for new ones, with a word on what to look at."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ilb.cli.commands import THIS_MODEL, fit_table, score_table, write_simulation
from ilb.cli.console import layout, notes, progress_bar, results, say, score_rows
from ilb.environments import Specification, Synthetic
from ilb.history import History
from ilb.models.latent import LatentModel
from ilb.offline.baselines import prepare_ingredients
from ilb.offline.scores import FitScores
from ilb.online.roster import build_policies, policy_on
from ilb.pages.page import Page
from ilb.plots.regret import plot_regret, save_figure, svg_of
from ilb.simulation import simulate
from ilb.streams import Stream
from ilb.version import __version__

INSTANCES, HORIZON = 200, 2000
CHECKPOINTS = (20, 100, 500, 2000)
ORACLE = "CPG (oracle)"


def run_demo(out: Path, seed: int) -> None:
    """Simulate records, learn a model, play 200 new people with every policy, and show what came of it."""
    began = time.perf_counter()
    logs_file, model_file = out / "logs.parquet", out / "model"
    specification = Specification(Synthetic(), seed=seed)
    notes.rule("1. Records of earlier people")
    write_simulation(specification, logs_file)
    notes.rule("2. Learn a latent model from them")
    columns = {"instance": "instance", "time": "time", "action": "action", "reward": "reward"}
    model = fit_table(logs_file, columns, model_file, test_share=0, seed=seed)
    notes.rule("3. How well it names the best action for 500 new people")
    world_file = out / "logs.world.json"
    scores = score_table(model_file, out / "logs.test.parquet", train=logs_file, world=world_file, as_json=False)
    notes.rule(f"4. Play {INSTANCES} new people for {HORIZON} rounds with every policy")
    histories = _play_all(model, specification, seed)
    title = "Cumulative regret: mean±standard error/median; share of best actions"
    results.print(layout(title, *_regret_rows(histories)))
    figure = plot_regret(histories, f"{INSTANCES} new instances, K = 20, learned model")
    save_figure(figure, out / "regret.png")
    page = out / "demo.html"
    _write_page(page, histories, scores, svg_of(figure), time.perf_counter() - began)
    for line in _what_to_look_at(histories, scores):
        say(f"- {line}")
    say(f"The page with the figure is {page}; everything is in {out}. {time.perf_counter() - began:.0f} seconds.")
    say("Your own table: ilb fit TABLE --instance … --action … --reward … --out MODEL")


def _play_all(model: LatentModel, specification: Specification, seed: int) -> dict[str, History]:
    """Play every policy of the roster on the learned model, and CPG on the true one; two compile at a time."""
    recorded = specification.record()
    given = prepare_ingredients(model.on_raw_contexts(), recorded.training.logs, seed=seed)
    policies = {**build_policies(given), ORACLE: policy_on(recorded.world.oracle(), "CPG")}
    key = Stream.DEMO.key(seed)
    histories = {}
    pool = ThreadPoolExecutor(2)
    try:
        with progress_bar("Playing", notes, value="regret") as report:
            playing = {
                name: pool.submit(simulate, key, recorded.world, policy, INSTANCES, HORIZON, chunk=INSTANCES)
                for name, policy in policies.items()
            }
            for number, (name, future) in enumerate(playing.items()):
                histories[name] = future.result()
                report(number + 1, len(playing), histories[name].regret_at(HORIZON).value)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # whoever interrupts does not want to wait for the rest
    return histories


def _regret_rows(histories: Mapping[str, History]) -> tuple[list[str], list[list[str]]]:
    header = ["policy", *(f"round {rounds:,}" for rounds in CHECKPOINTS), "best"]
    rows = []
    for name, history in sorted(histories.items(), key=lambda one: one[1].regret_at(HORIZON).value):
        at = [history.regret_at(rounds) for rounds in CHECKPOINTS]
        cells = [f"{_brief(s.value)}±{_brief(s.standard_error)}/{_brief(s.median)}" for s in at]
        rows.append([name, *cells, f"{100 * history.optimal_share().value:.0f} %"])
    return header, rows


def _brief(regret: float | None) -> str:
    if regret is None:
        return "-"
    return f"{regret:.1f}" if regret < 10 else f"{regret:.0f}"


def _what_to_look_at(histories: Mapping[str, History], scores: Mapping[str, FitScores]) -> list[str]:
    """Say what the numbers show, with the numbers."""
    found = {name: 100 * line.best_action.value for name, line in scores.items() if line.best_action is not None}
    regret = {name: history.regret_at(HORIZON).value for name, history in histories.items()}
    early = {name: history.regret_at(CHECKPOINTS[0]).value for name, history in histories.items()}
    return [
        f"Of 20 actions, the learned model names the best one for {found[THIS_MODEL]:.0f} % of new people from their "
        f"contexts alone; the true encoder would for {found['oracle']:.0f} %, least squares on mean contexts for "
        f"{found['mean contexts']:.0f} %, the action that is best on average for {found['best on average']:.0f} %.",
        f"In the first {CHECKPOINTS[0]} rounds a bandit from scratch (MAB) loses {early['MAB']:.1f}; CPG on "
        f"the learned model loses {early['CPG']:.1f}, and the adaptive policy {early['Adaptive']:.1f}.",
        f"After {HORIZON:,} rounds: MAB {regret['MAB']:.0f}, CPG {regret['CPG']:.1f}, adaptive policy "
        f"{regret['Adaptive']:.1f}, CPG with the true model {regret[ORACLE]:.1f}.",
        f"FPG as printed weighs all contexts together like one reward, so it stops learning from them: "
        f"{regret['FPG']:.0f}. With the weighting of the authors' code it is {regret['FPG (released)']:.1f}.",
    ]


def _write_page(
    path: Path, histories: Mapping[str, History], scores: Mapping[str, FitScores], svg: str, seconds: float
) -> None:
    page = Page(
        "Identifiable latent bandits: a demonstration",
        "Records of 100 people, 200 rounds each, taught a latent model. It then decides for 200 new people.",
    )
    page.heading("What to look at")
    for line in _what_to_look_at(histories, scores):
        page.paragraph(line)
    page.heading("Regret")
    page.figure(
        svg,
        f"Mean cumulative regret of {INSTANCES} new instances, the same for every policy; bands are one standard error "
        "over instances; both axes are logarithmic.",
    )
    header, rows = _regret_rows(histories)
    page.table(header, rows, best=[number for number, row in enumerate(rows) if row[0] == "Adaptive"])
    page.paragraph(
        "Each cell is mean ± standard error / median over instances; the last column is the share of best actions."
    )
    page.paragraph(
        "Regret is heavy-tailed: for some people the two best actions are nearly equally good and it hardly matters "
        "which is taken, for others a mistake is made again and again. The median says what is typical."
    )
    page.heading("The model behind it")
    page.table(["score on 500 unseen people", *scores], score_rows(scores))
    page.write(path, f"Made by ilb {__version__} in {seconds:.0f} seconds. Make it again: ilb demo")
