"""From results to what people look at: regret curves with a table below, scores beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ilb.logs.messages import counted
from ilb.plots.panels import Line, PanelGrid, plot_panels
from ilb_paper.experiment import Exhibit, RegretFigure, ScoreRow, ScoreTable, Table
from ilb_paper.learners import RECURRENT
from ilb_paper.players import Player
from ilb_paper.results import Estimate, Results
from ilb_paper.settings import Setting

PREFIXES = "best_action_prefixes"
SHOWN_ROUNDS = (20, 100, 500, 2000)


def show_regret(experiment: RegretFigure, results: Results) -> Exhibit:
    """Draw every group of players in every setting, and write mean ± standard error / median below."""
    grid = []
    for group in experiment.groups:
        row = []
        for panel in experiment.panels:
            lines = []
            for player in played(experiment, panel.setting, group.players, results):
                curve = results.curve(panel.setting, player, experiment.horizon)
                lines.append(Line(player.policy, player.model, *curve))
            row.append(lines)
        grid.append(row)
    figure = plot_panels(
        PanelGrid(grid, [panel.title for panel in experiment.panels], [group.title for group in experiment.groups])
    )
    tables = [
        Table(f"Cumulative regret, {panel.title}", *_regret_rows(experiment, panel.setting, results))
        for panel in experiment.panels
    ]
    left = sum(task not in results.store for task in experiment.tasks(results))
    remarks = (*experiment.remarks, f"Still to come: {counted(left, 'play')}.") if left else experiment.remarks
    return Exhibit({file_name(experiment.label): figure}, tables, remarks)


def played(experiment: RegretFigure, setting: Setting, players: Sequence[Player], results: Results) -> list[Player]:
    """Leave out who was not played in a setting yet."""
    return [p for p in players if results.is_played(setting, p, experiment.horizon)]


def _regret_rows(experiment: RegretFigure, setting: Setting, results: Results) -> tuple[list[str], list[list[str]]]:
    horizon = results.size.horizon(experiment.horizon)
    shown = [r for r in SHOWN_ROUNDS if r < horizon] + [horizon]
    lines: list[tuple[float, list[str]]] = []
    for player in played(experiment, setting, experiment.players, results):
        curve = results.curve(setting, player, experiment.horizon)
        at = [int(np.abs(curve.rounds - r).argmin()) for r in shown]
        cells = [f"{_short(curve.mean[i])} ± {_short(curve.standard_error[i])} / {_short(curve.median[i])}" for i in at]
        lines.append((float(curve.mean[-1]), [player.policy, player.model or "-", *cells]))
    header = ["policy", "model", *(f"round {r:,}" for r in shown)]
    return header, [row for _, row in sorted(lines, key=lambda line: line[0])]


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def file_name(label: str) -> str:
    """Turn a LaTeX label into the name of a file.

    >>> file_name("fig:emission_noise")
    'fig-emission-noise'
    """
    return label.replace(":", "-").replace("_", "-").lower()


METRICS = (("mcc", "MCC", 1.0, 2), ("reward_r2", "R²", 1.0, 3), ("best_action", "% best", 100.0, 1))


def show_scores(experiment: ScoreTable, results: Results) -> Exhibit:
    """Write each score of the paper and, beside it, ours with its standard error over fits."""
    header = [*experiment.header]
    for _, name, _, _ in METRICS:
        header += [f"{name}, paper", f"{name}, ours"]
    header += ["R² of z, affine", "% best, all prefixes", "fits", "CPU s a fit"]
    done = [row for row in experiment.rows if is_fitted(row, results)]
    rows = [_score_row(row, results) for row in done]
    left = len(experiment.rows) - len(done)
    remarks = (*experiment.remarks, f"Not fitted yet: {counted(left, 'row')}.") if left else experiment.remarks
    return Exhibit({}, [Table(experiment.title, header, rows)], remarks)


def is_fitted(row: ScoreRow, results: Results) -> bool:
    """Say whether fits of a row are stored, the first block of seeds at least."""
    return results.fit_tasks(row.setting, row.learner)[0] in results.store


def _score_row(row: ScoreRow, results: Results) -> list[str]:
    cells = list(row.describe)
    for (metric, _, factor, digits), paper in zip(METRICS, row.paper, strict=True):
        ours = results.score(row.setting, row.learner, metric)
        cells += ["-" if paper is None else f"{paper:g}", _shown(ours, factor, digits)]
    cells.append(_shown(results.score(row.setting, row.learner, "affine_r2"), 1.0, 3))
    prefixes = row.learner in RECURRENT
    cells.append(f"{100 * results.scores(row.setting, row.learner, PREFIXES).mean():.1f}" if prefixes else "-")
    seconds = results.scores(row.setting, row.learner, "fit_cpu_seconds")
    return [*cells, str(len(seconds)), f"{seconds.mean():.1f}"]


def _shown(score: Estimate, factor: float, digits: int) -> str:
    if not np.isfinite(score.value):
        return "-"
    return f"{factor * score.value:.{digits}f} ± {factor * score.standard_error:.{digits}f}"
