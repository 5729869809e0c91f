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


def word_for(recipe: EncoderRecipe) -> str:
    """Give the word that the command line has for a recipe; for one of your own, the name of its class.

    >>> word_for(PlainContexts()), word_for(TiedRecipe.deep()), word_for(TiedRecipe(width=7))
    ('contexts', 'deep', 'tied')
    """
    known = {**UNTRAINED_RECIPES, **ENCODER_RECIPES}
    same = [word for word, make in known.items() if make() == recipe]
    alike = [word for word, make in known.items() if type(make()) is type(recipe)]
    return [*same, *alike, type(recipe).__name__][0]
