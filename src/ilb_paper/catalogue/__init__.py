"""One small file for each table or figure; a new one is a file and a line here."""

from __future__ import annotations

from ilb_paper.catalogue import (
    fig_adcb,
    fig_ate_a,
    fig_emission_noise,
    fig_eta_dist,
    fig_multi_arm,
    fig_no_age,
    fig_noise_latent,
    fig_noise_reward,
    fig_nonlinear_reward,
    fig_ood,
    fig_synthetic,
    fig_synthetic_contextual,
    fig_z_q_dist_adcb,
    ood_plots_2,
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
    fig_ood.EXPERIMENT,
    ood_plots_2.EXPERIMENT,
    fig_multi_arm.EXPERIMENT,
    fig_emission_noise.EXPERIMENT,
    fig_noise_latent.EXPERIMENT,
    fig_no_age.EXPERIMENT,
    fig_noise_reward.EXPERIMENT,
    fig_nonlinear_reward.EXPERIMENT,
    fig_eta_dist.EXPERIMENT,
    fig_synthetic_contextual.EXPERIMENT,
    fig_z_q_dist_adcb.EXPERIMENT,
    fig_ate_a.EXPERIMENT,
    thm_regret.EXPERIMENT,
    thm_id_latent.EXPERIMENT,
)

EXPERIMENTS: dict[str, AbstractExperiment] = {experiment.label: experiment for experiment in _ALL}
"""Every experiment by its label, in the order of the report."""
