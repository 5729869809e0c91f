"""Rows of the paper's tables of fits, as data: MCC, R² of rewards and % of best actions found."""

from ilb.environments import Adcb, ContextNoise, Plan, Synthetic
from ilb_paper.experiment import ScoreRow
from ilb_paper.learners import (
    MEAN_CONTEXTS,
    OURS,
    PAPER,
    PAPER_WIDE,
    REGRESSION,
    REGRESSION_SORTED,
    TRUE_ENCODER,
    VAE,
    VAE_RELEASED,
)
from ilb_paper.settings import AbstractSetting, AdcbSetting, SyntheticSetting

Triple = tuple[float | None, float | None, float | None]

# (layers, length) -> the paper's numbers; table:fit_results.
LVM_SYNTHETIC: dict[tuple[int, int], Triple] = {
    (2, 100): (0.89, 0.75, 79),
    (2, 200): (0.92, 0.76, 82),
    (2, 300): (0.91, 0.75, 87),
    (4, 100): (0.91, 0.72, 76),
    (4, 200): (0.90, 0.75, 82),
    (4, 300): (0.91, 0.74, 82),
}
VAE_SYNTHETIC: dict[tuple[int, int], Triple] = {
    (2, 100): (0.94, 0.69, 70),
    (2, 200): (0.93, 0.72, 88),
    (2, 300): (0.94, 0.70, 72),
    (4, 100): (0.87, 0.43, 40),
    (4, 200): (0.91, 0.43, 48),
    (4, 300): (0.91, 0.51, 52),
}
REGRESSION_SYNTHETIC: dict[tuple[int, int], Triple] = {
    (2, 100): (None, 0.70, 61),
    (2, 200): (None, 0.75, 69),
    (2, 300): (None, 0.72, 73),
    (4, 100): (None, 0.50, 29),
    (4, 200): (None, 0.61, 44),
    (4, 300): (None, 0.59, 55),
}
LVM_ADCB: dict[tuple[int, int], Triple] = {
    (2, 100): (None, 0.92, 88),
    (2, 200): (None, 0.92, 89),
    (2, 300): (None, 0.92, 87),
    (4, 100): (None, 0.91, 86),
    (4, 200): (None, 0.90, 78),
    (4, 300): (None, 0.91, 82),
}
VAE_ADCB: dict[tuple[int, int], Triple] = {
    (2, 100): (None, 0.94, 95),
    (2, 200): (None, 0.94, 97),
    (2, 300): (None, 0.94, 95),
    (4, 100): (None, 0.94, 95),
    (4, 200): (None, 0.94, 96),
    (4, 300): (None, 0.94, 95),
}
REGRESSION_ADCB: dict[tuple[int, int], Triple] = {
    (2, 100): (None, 0.95, 89),
    (2, 200): (None, 0.95, 92),
    (2, 300): (None, 0.95, 93),
    (4, 100): (None, 0.89, 51),
    (4, 200): (None, 0.95, 90),
    (4, 300): (None, 0.95, 93),
}
# tab:test, T_o = 200, which differs from table:fit_results in several cells.
MAIN_TABLE: dict[tuple[str, int], Triple] = {
    (PAPER, 2): (0.89, 0.78, 84),
    (PAPER, 4): (0.90, 0.75, 80),
    (VAE, 2): (0.90, 0.72, 82),
    (VAE, 4): (0.85, 0.62, 48),
    (REGRESSION, 2): (None, 0.75, 62),
    (REGRESSION, 4): (None, 0.63, 52),
}
# tab:emission_noise: standard deviation of the noise on contexts.
EMISSION_NOISE: dict[tuple[str, float], Triple] = {
    (PAPER, 0.25): (None, 0.73, 76),
    (VAE, 0.25): (None, 0.73, 80),
    (REGRESSION, 0.25): (None, 0.72, 69),
    (PAPER, 0.5): (None, 0.71, 75),
    (VAE, 0.5): (None, 0.72, 74),
    (REGRESSION, 0.5): (None, 0.70, 61),
    (PAPER, 1.0): (None, 0.70, 68),
    (VAE, 1.0): (None, 0.73, 77),
    (REGRESSION, 1.0): (None, 0.65, 56),
}

NOTHING: Triple = (None, None, None)
LEARNERS = (PAPER, PAPER_WIDE, OURS, VAE, REGRESSION)
"""The paper's own, its encoder with the printed and with the released width; and ours."""


def synthetic_rows() -> tuple[ScoreRow, ...]:
    """All rows of the synthetic half of table:fit_results, and ours between them."""
    printed = {PAPER: LVM_SYNTHETIC, VAE: VAE_SYNTHETIC, REGRESSION: REGRESSION_SYNTHETIC}
    return tuple(
        _row(SyntheticSetting(Synthetic(layers=layers), Plan(length=length)), learner, (layers, length), printed)
        for learner in LEARNERS
        for layers, length in LVM_SYNTHETIC
    )


def adcb_rows() -> tuple[ScoreRow, ...]:
    """The ADCB half, with the released rewards, which the paper's scores go with, and with the printed ones."""
    printed = {PAPER: LVM_ADCB, VAE: VAE_ADCB, REGRESSION: REGRESSION_ADCB}
    all_lengths = tuple(
        _row(
            AdcbSetting(Adcb(rewards=rewards), Plan(length=length), layers=layers),
            learner,
            (rewards, layers, length),
            printed,
        )
        for rewards in ("released", "printed")
        for learner in LEARNERS
        for layers, length in LVM_ADCB
    )
    without_age = tuple(
        _row(AdcbSetting(Adcb(rewards="released", context="without_age")), learner, ("released, no Age", 2, 200), {})
        for learner in (OURS, VAE)
    )
    noisy = tuple(
        _row(AdcbSetting(Adcb(0.1, "released", context)), learner, (says, 2, 200), {})
        for context, says in (("nine", "released, noise 0.1"), ("without_age", "released, noise 0.1, no Age"))
        for learner in (PAPER, PAPER_WIDE, OURS, VAE)
    )
    plain = tuple(
        _row(AdcbSetting(Adcb(rewards=rewards)), MEAN_CONTEXTS, (rewards, 2, 200), {})
        for rewards in ("released", "printed")
    )
    return all_lengths + without_age + noisy + plain


def _row(
    setting: AbstractSetting,
    learner: str,
    describe: tuple[str | int, ...],
    printed: dict[str, dict[tuple[int, int], Triple]],
) -> ScoreRow:
    layers, length = describe[-2:]
    paper = printed.get(learner, {}).get((int(layers), int(length)), NOTHING)
    return ScoreRow(setting, learner, (learner, *map(str, describe)), paper)


def main_rows() -> tuple[ScoreRow, ...]:
    """The rows of tab:test, ours between them, and what the released code does otherwise."""
    return tuple(
        ScoreRow(
            SyntheticSetting(Synthetic(layers=layers)),
            learner,
            (learner, str(layers)),
            MAIN_TABLE.get((learner, layers), NOTHING),
        )
        for learner in (
            PAPER,
            PAPER_WIDE,
            OURS,
            VAE,
            VAE_RELEASED,
            REGRESSION,
            REGRESSION_SORTED,
            TRUE_ENCODER,
            MEAN_CONTEXTS,
        )
        for layers in (2, 4)
    )


def emission_noise_rows() -> tuple[ScoreRow, ...]:
    """The rows of tab:emission_noise, and ours between them."""
    return tuple(
        ScoreRow(
            SyntheticSetting(always=(ContextNoise(std),)),
            learner,
            (learner, f"{std:g}"),
            EMISSION_NOISE.get((learner, std), NOTHING),
        )
        for std in (0.25, 0.5, 1.0)
        for learner in LEARNERS
    )
