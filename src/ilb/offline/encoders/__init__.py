"""Encoder recipes: how contexts become encodings. A new one is a file and a line here."""

from collections.abc import Callable

from ilb.offline.encoders.paper import PaperRecipe
from ilb.offline.encoders.plain import NoEncoding, PlainContexts
from ilb.offline.encoders.recipe import EncoderRecipe
from ilb.offline.encoders.tied import TiedRecipe
from ilb.offline.encoders.vae import VAERecipe
from ilb.offline.encoders.with_contexts import WithContexts

ENCODER_RECIPES: dict[str, Callable[[], EncoderRecipe]] = {
    "tied": TiedRecipe,
    "deep": TiedRecipe.deep,
    "with-contexts": WithContexts,
    "paper": PaperRecipe,
    "vae": VAERecipe,
}
"""Every recipe by the name that the command line gives it."""

UNTRAINED_RECIPES: dict[str, Callable[[], EncoderRecipe]] = {"none": NoEncoding, "contexts": PlainContexts}
"""Those that learn nothing, and whose dimension is not asked for."""
