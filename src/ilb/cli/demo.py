"""`ilb demo`: the offline stage end to end on a simulated world, with a word on what to look at."""

from __future__ import annotations

from pathlib import Path

from ilb.cli.console import notes, say
from ilb.cli.work import THIS_MODEL, fit_table, score_table, write_simulation
from ilb.environments.specification import SyntheticSpecification


def run_demo(out: Path, seed: int) -> None:
    """Simulate, fit, score, and say what the numbers mean."""
    logs, model = out / "logs.parquet", out / "model"
    notes.rule("1. Records of earlier people")
    write_simulation(SyntheticSpecification(seed=seed), logs)
    notes.rule("2. Learn a latent model from them")
    columns = {"instance": "instance", "time": "time", "action": "action", "reward": "reward"}
    fit_table(logs, columns, model, latent_dim=5, recipe="tied", test_share=0, seed=seed)
    notes.rule("3. Score it on 500 new people")
    lines = score_table(model, out / "logs.test.parquet", train=logs, world=out / "logs.world.json", as_json=False)
    found = {name: 100 * line.best_action.value for name, line in lines.items() if line.best_action is not None}
    say(
        f"Of 20 actions, the learned model names the best one for {found[THIS_MODEL]:.0f} % of new people. "
        f"The true encoder would name it for {found['oracle']:.0f} %, least squares on their mean contexts for "
        f"{found['mean contexts']:.0f} %, and the action that was best on average for {found['best on average']:.0f} %."
    )
    say(f"All files are in {out}. Your own table: ilb fit TABLE --instance … --action … --reward … --out MODEL")
