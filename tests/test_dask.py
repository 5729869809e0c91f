"""Work on a real Dask cluster: a worker that dies half-way costs nothing, and the numbers are those of this process."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from ilb.environments import Synthetic
from ilb.errors import IlbError
from ilb_paper import runner
from ilb_paper.experiment import Panel, RegretFigure
from ilb_paper.players import Group, Player
from ilb_paper.results import Results, Size
from ilb_paper.runner import plan, run
from ilb_paper.settings import SyntheticSetting
from ilb_paper.store import Store
from ilb_paper.tasks import AbstractTask, Outcome

SPREAD = RegretFigure(
    label="spread",
    title="many small tasks of one program",
    panels=tuple(Panel(f"{std}", SyntheticSetting(Synthetic(reward_std=std))) for std in (0.1, 0.2, 0.3, 0.4, 0.5)),
    groups=(Group("", (Player("MAB"),)),),
)


class Killer:
    """Kills a worker when the first outcome has come."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.killed: int | None = None

    def started(self, tasks: int, weight: float, stored: int) -> None:
        self.tasks = tasks

    def finished(self, task: AbstractTask, outcome: Outcome) -> None:
        if self.killed is None:
            pids = self.client.run(os.getpid)
            self.killed = killed = next(iter(pids.values()))
            os.kill(killed, signal.SIGKILL)


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_loses_nothing_and_changes_nothing(tmp_path: Path) -> None:
    here, there = Results(Store(tmp_path / "here"), Size(0.005)), Results(Store(tmp_path / "there"), Size(0.005))
    assert not run([SPREAD], here)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        killer = Killer(client)
        first = replace(SPREAD, panels=SPREAD.panels[:1])
        assert not run([first], there, backend="dask")  # on the cluster that the caller is connected to
        assert not run([SPREAD], there, backend="dask", cluster=cluster.scheduler_address, monitor=killer)
    assert killer.killed
    assert killer.tasks == len(SPREAD.panels) - 1
    for wave in plan([SPREAD], here):
        for task in wave:
            assert here.store.table(task).equals(there.store.table(task))


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ANSWER_WITHIN", "1s")
    for wrong in ("tcp://127.0.0.1:1", "nonsense://x"):
        with pytest.raises(IlbError, match=f"no Dask scheduler answers at {wrong}"):
            run([SPREAD], Results(Store(tmp_path), Size(0.001)), backend="dask", cluster=wrong)


def test_dask_without_a_cluster_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(IlbError, match="--cluster"):
        run([SPREAD], Results(Store(tmp_path), Size(0.001)), backend="dask")
