"""MeanContrastive: the encoder alone, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ilb.errors import FitError
from ilb.logs import Logs
from ilb.offline.dimension import choose_latent_dim
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encodings import encode_contexts
from ilb.offline.training import fit_keys


class MeanContrastive(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode contexts so that the instances they come from differ in their mean encoding (eq. NN_prob, eq. obj).

    Parameters
    ----------
    n_components : int, default=2
        Latent dimension; None chooses it by held-out contrastive likelihood.
    recipe : EncoderRecipe, default=None
        How to learn; None is `TiedRecipe()`, and `PaperRecipe()` is the paper's.
    seed : int, default=0
        The same data and seed give the same encoder.

    Attributes
    ----------
    encoder_ : Encoder
        The fitted encoder of scaled contexts, for one row.
    mean_, scale_ : ndarray
        What a row is centred and scaled by first.
    training_curve_ : LossCurve
        The loss at each score.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> person = np.repeat(np.arange(30), 20)
    >>> X = rng.normal(size=(30, 3))[person] + rng.normal(size=(600, 3))
    >>> MeanContrastive(n_components=2).fit(X, person).transform(X).shape
    (600, 2)
    """

    # The contract of scikit-learn: a constructor keeps whatever it is given, and `fit` looks at it.
    def __init__(self, n_components: Any = 2, recipe: Any = None, seed: Any = 0) -> None:
        self.n_components = n_components
        self.recipe = recipe
        self.seed = seed

    def fit(self, X: Any, y: Any) -> MeanContrastive:
        """Learn from rows X and the instance y[i] that each row i comes from."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2)
        labels, instance = np.unique(y, return_inverse=True)
        if len(labels) < 2:
            raise FitError("y names 1 instance only; contrastive learning needs at least 2 classes to tell apart.")
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        spread = X.std(axis=0, dtype=np.float64)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        nothing = np.full(len(X), np.nan)
        logs = Logs.from_arrays(self._scale(X), nothing, nothing, instance, actions=2)
        dim = self.n_components
        if dim is None:
            dim = choose_latent_dim(logs, seed=self.seed).chosen
        if not 1 <= dim <= X.shape[1]:
            raise FitError(f"n_components must be between 1 and the {X.shape[1]} columns of X; got {dim}.")
        recipe: EncoderRecipe = TiedRecipe() if self.recipe is None else self.recipe
        trained = recipe.train(fit_keys([self.seed]), [logs], dim)[0]
        self.encoder_ = trained.encoder
        self.training_curve_ = trained.curve
        self._n_features_out = dim
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Encode rows, in float32."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return encode_contexts(self.encoder_, self._scale(X))

    def _scale(self, X: np.ndarray) -> np.ndarray:
        return np.asarray((X - self.mean_) / self.scale_, dtype=np.float32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
