"""`check`: every question about a model and a table, asked in turn. A new check is a function and a line here."""

from __future__ import annotations

from collections.abc import Callable

from ilb.logs import Logs, require_logs
from ilb.models.latent import LatentModel, require_model
from ilb.trust.amounts import check_amount
from ilb.trust.apart import check_fingerprints, check_people_apart
from ilb.trust.certainty import check_intervals, check_probabilities
from ilb.trust.checks import Check, Checks
from ilb.trust.choices import check_choices, check_overlap, check_support
from ilb.trust.held_out import HeldOut
from ilb.trust.noise import check_noise
from ilb.trust.predictions import check_linearity, check_rewards
from ilb.trust.rounds import check_drift, check_later_contexts
from ilb.trust.state import check_dimensions, check_halves, check_other_fits, check_reliability
from ilb.types import Report, silent

CHECKS: tuple[Callable[[HeldOut], Check], ...] = (
    check_people_apart,
    check_fingerprints,
    check_dimensions,
    check_reliability,
    check_halves,
    check_other_fits,
    check_rewards,
    check_linearity,
    check_intervals,
    check_probabilities,
    check_noise,
    check_drift,
    check_later_contexts,
    check_choices,
    check_overlap,
    check_support,
    check_amount,
)
"""Every check, in the order in which they are shown."""

FITTING = 10
"""How long the fits take beside one check, for the time left: a guess."""


def check(model: LatentModel, logs: Logs, *, unseen: bool = False, seed: int = 0, report: Report = silent) -> Checks:
    """Check whether these data are what the model takes them for, and whether it may be trusted on them.

    Everybody is looked at by a model that has not seen them: unless `unseen` says that these are people other than
    those it was fitted on, the way in which it was fitted is repeated without each third of the people. Of large tables
    a sample of people is looked at. Every check compares a figure with what chance would give, or with what the model
    states, and says in words what it means and what to do.

    >>> import numpy as np
    >>> from ilb import PersonRewardRecipe, PlainContexts, fit
    >>> rng = np.random.default_rng(0)
    >>> state = rng.normal(size=(60, 1, 2))
    >>> context, action = state + rng.normal(size=(60, 20, 2)), rng.integers(2, size=(60, 20))
    >>> reward = np.take_along_axis(state, action[..., None], axis=2)[..., 0] + rng.normal(size=(60, 20))
    >>> logs = Logs.from_arrays(context, action, reward)
    >>> model = fit(logs, latent_dim=2, recipe=PlainContexts(), reward=PersonRewardRecipe(hidden=0))
    >>> checks = check(model, logs)
    >>> checks.sentence()
    'All 17 checks are fine.'
    >>> checks["other fits"].figure
    'R² 1.000'
    """
    require_model(model, "a check")
    require_logs(logs, "a check")
    asked = len(CHECKS)
    report(0, FITTING + asked, 0.0)
    held = HeldOut.of(model, logs, unseen=unseen, seed=seed)
    report(FITTING, FITTING + asked, 0.0)
    rows = []
    for number, ask in enumerate(CHECKS):
        rows.append(ask(held))
        report(FITTING + number + 1, FITTING + asked, float(number + 1))
    return Checks(tuple(rows), held.about)
