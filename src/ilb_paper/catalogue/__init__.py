"""Tables and figures, those that share their worlds in one file; a new one is a file and a line here."""

from ilb_paper.catalogue import (
    app_adcb_ate,
    fig_adcb,
    fig_emission_noise,
    fig_ood,
    fig_rewards,
    fig_synthetic,
    fig_synthetic_contextual,
    tables,
    thm_id_latent,
    thm_regret,
)
from ilb_paper.experiment import AbstractExperiment

_ALL: tuple[AbstractExperiment, ...] = (
    tables.MAIN,
    tables.SYNTHETIC,
    tables.ADCB,
    fig_emission_noise.TABLE,
    fig_synthetic.EXPERIMENT,
    fig_adcb.EXPERIMENT,
    fig_ood.LENGTH,
    fig_ood.COORDINATES,
    fig_rewards.ACTIONS,
    fig_emission_noise.FIGURE,
    fig_adcb.WITH_AGE,
    fig_adcb.WITHOUT_AGE,
    fig_rewards.NOISE,
    fig_rewards.NONLINEAR,
    fig_synthetic.OTHER_NOISE,
    fig_synthetic_contextual.EXPERIMENT,
    app_adcb_ate.STATES,
    app_adcb_ate.EFFECTS,
    thm_regret.EXPERIMENT,
    thm_id_latent.EXPERIMENT,
)

EXPERIMENTS: dict[str, AbstractExperiment] = {experiment.label: experiment for experiment in _ALL}
"""Every experiment by its label, in the order of the report."""
