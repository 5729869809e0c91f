"""A file for each table or figure, or for two that share their worlds; a new one is a file and a line here."""

from ilb_paper.catalogue import (
    app_adcb_ate,
    fig_adcb,
    fig_emission_noise,
    fig_eta_dist,
    fig_multi_arm,
    fig_noise_latent,
    fig_noise_reward,
    fig_nonlinear_reward,
    fig_ood,
    fig_synthetic,
    fig_synthetic_contextual,
    tab_emission_noise,
    tab_test,
    table_fit_results,
    thm_id_latent,
    thm_regret,
)
from ilb_paper.experiment import AbstractExperiment

_ALL: tuple[AbstractExperiment, ...] = (
    tab_test.EXPERIMENT,
    table_fit_results.SYNTHETIC,
    table_fit_results.ADCB,
    tab_emission_noise.EXPERIMENT,
    fig_synthetic.EXPERIMENT,
    fig_adcb.EXPERIMENT,
    fig_ood.LENGTH,
    fig_ood.COORDINATES,
    fig_multi_arm.EXPERIMENT,
    fig_emission_noise.EXPERIMENT,
    fig_noise_latent.WITH_AGE,
    fig_noise_latent.WITHOUT_AGE,
    fig_noise_reward.EXPERIMENT,
    fig_nonlinear_reward.EXPERIMENT,
    fig_eta_dist.EXPERIMENT,
    fig_synthetic_contextual.EXPERIMENT,
    app_adcb_ate.STATES,
    app_adcb_ate.EFFECTS,
    thm_regret.EXPERIMENT,
    thm_id_latent.EXPERIMENT,
)

EXPERIMENTS: dict[str, AbstractExperiment] = {experiment.label: experiment for experiment in _ALL}
"""Every experiment by its label, in the order of the report."""
