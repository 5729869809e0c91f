"""`report`: what a model has learned from a table, whether to believe it and what it would bring, on one page."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from ilb.errors import FitError, IlbError, LogsError
from ilb.files import write_whole
from ilb.logs import Logs, require_logs
from ilb.models.latent import LatentModel, require_model
from ilb.pages import evidence, origin, people, summary
from ilb.pages.contents import CONTENTS
from ilb.pages.look import REPORT_STYLE
from ilb.pages.page import Page
from ilb.trust.checking import check
from ilb.trust.checks import Checks
from ilb.trust.evaluation import Evaluation
from ilb.trust.gain import evaluate
from ilb.trust.portrait import Portrait, portray
from ilb.trust.stories import Story, tell_stories
from ilb.types import Report as Progress
from ilb.types import silent
from ilb.version import __version__

PARTS = ("checks", "gain")
"""What takes its time, and can be left out."""


@dataclass(frozen=True)
class Report:
    """All that a report tells of a model and a table; `save` writes it as a page, `html` gives it as text.

    `checks` and `evaluation` are None where they were left out; `gain_left_out` says why, if nobody wished it.
    """

    model: LatentModel
    logs: Logs
    portrait: Portrait
    stories: tuple[Story, ...]
    checks: Checks | None = None
    evaluation: Evaluation | None = None
    gain_left_out: str = ""
    source: str = ""
    command: str = ""
    made: datetime | None = None

    @property
    def title(self) -> str:
        schema = self.logs.schema
        return f"What helps whom: {schema.reward} by {schema.action}"

    def html(self) -> str:
        """Give the page as text: everything is in it, and nothing is fetched."""
        page = Page(self.title, self._lead(), style=REPORT_STYLE)
        summary.in_short(page, self.portrait, self.model, self.checks, self.evaluation)
        page.contents(CONTENTS)
        origin.the_data(page, self.logs)
        origin.the_choice(page, self.model)
        evidence.the_checks(page, self.checks)
        people.the_people(page, self.portrait, self.logs)
        people.the_directions(page, self.portrait, self.logs)
        people.the_rewards(page, self.portrait, self.model)
        evidence.the_amount(page, self.checks)
        evidence.the_gain(page, self.evaluation, self.gain_left_out)
        people.the_stories(page, self.stories, self.portrait, self.model, self.logs.schema.instance)
        origin.how_it_was_made(page, self.model, self.source, self.command, self.made)
        return page.text(f"Made by ILB {__version__}. Research software; not a medical device.")

    def save(self, path: str | Path) -> None:
        """Write the page to a file, in one step."""
        write_whole(Path(path), self.html())

    def _lead(self) -> str:
        source = f"From {self.source}: " if self.source else ""
        return f"{source}{self.logs.describe().sentence()}."

    def __repr__(self) -> str:
        left = [name for name, part in zip(PARTS, (self.checks, self.evaluation), strict=True) if part is None]
        without = f", without {' and '.join(left)}" if left else ""
        return f"Report({self.logs.instances:,} people{without}; save it with .save('report.html'))"

    def _repr_html_(self) -> str:
        page = escape(self.html(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:45rem;border:1px solid #8888"></iframe>'


def report(
    model: LatentModel,
    logs: Logs,
    *,
    checks: Checks | None = None,
    evaluation: Evaluation | None = None,
    without: Collection[str] = (),
    source: str = "",
    command: str = "",
    seed: int = 0,
    progress: Progress = silent,
) -> Report:
    """Report on a model and a table, for whoever knows statistics and whoever knows the people.

    The model is checked (`check`) and what it would bring is estimated (`evaluate`, with the way in which it was fitted
    repeated on other people), unless `checks` and `evaluation` are given or left out: `without=["gain"]`, or
    `without=["checks", "gain"]`, which takes seconds. `source` and `command` are written down as given.

    >>> import numpy as np
    >>> from ilb import PersonRewardRecipe, PlainContexts, fit
    >>> rng = np.random.default_rng(0)
    >>> state = rng.normal(size=(60, 1, 2))
    >>> context, action = state + rng.normal(size=(60, 20, 2)), rng.integers(2, size=(60, 20))
    >>> reward = np.take_along_axis(state, action[..., None], axis=2)[..., 0] + rng.normal(size=(60, 20))
    >>> logs = Logs.from_arrays(context, action, reward)
    >>> model = fit(logs, latent_dim=2, recipe=PlainContexts(), reward=PersonRewardRecipe(hidden=0))
    >>> report(model, logs, without=["checks", "gain"])
    Report(60 people, without checks and gain; save it with .save('report.html'))
    """
    unknown = sorted(set(without) - set(PARTS))
    if unknown:
        raise IlbError(f"a report can be made without {' and '.join(PARTS)}; got without={unknown}.")
    require_model(model, "a report")
    require_logs(logs, "a report")
    steps = [name for name, given in zip(PARTS, (checks, evaluation), strict=True) if given is None]
    steps = [name for name in steps if name not in without]
    total, done = 100 * len(steps) + 10, 10
    progress(0, total, 0.0)
    logs = model.read(logs)
    portrait = portray(model, logs)
    stories = tell_stories(model, logs, portrait)
    left_out = ""
    if "checks" in steps:
        checks = check(model, logs, seed=seed, report=_part_of(progress, done, total))
        done += 100
    if "gain" in steps:
        try:
            evaluation = evaluate(logs, model=model, seed=seed, report=_part_of(progress, done, total))
        except (FitError, LogsError) as error:  # it can not be fitted again, or people are too few
            left_out = str(error)
    progress(total, total, 0.0)
    return Report(model, logs, portrait, stories, checks, evaluation, left_out, source, command, datetime.now(UTC))


def _part_of(progress: Progress, done: int, total: int) -> Progress:
    """Report a hundred of the whole's steps as a part reports its own."""

    def tell(step: int, steps: int, score: float) -> None:
        progress(done + round(100 * step / max(steps, 1)), total, score)

    return tell
