"""Messages of the library in the words of the command line: options where a programmer would read arguments."""

from __future__ import annotations

import re

OPTIONS = (
    "instance",
    "action",
    "reward",
    "time",
    "context",
    "categorical",
    "drop",
    "recipe",
    "latent_dim",
    "context_dim",
    "policy",
    "horizon",
    "seed",
)
"""Arguments that are options of the same name."""

_NAMES = "|".join(OPTIONS)

_REWORDED = (
    # Both are named: what is left is the option, with its value.
    (re.compile(r"drop=\(.*?\) in Logs\.from_frame, (`ilb fit [^`]*`), or logs\.without\(\[.*?\]\)"), r"\1"),
    (re.compile(r"\b\w+=(?:\[[^\]]*\]|\([^)]*\)|[^\s,]*), (--[a-z])"), r"\1"),
    (re.compile(r"\bleave reward= out"), "leave --reward-model out"),
    (re.compile(r"\bfit\(\) "), "ilb fit "),
    # There is no frame that could be passed.
    (re.compile(r",? or read it yourself(, with its encoding,)? and pass the frame"), ""),
)

_ARGUMENT = re.compile(rf"(?<![\w'])({_NAMES})=(?=[\s.,;:)]|$)")
_WITH_VALUE = re.compile(rf"(?<![\w'])({_NAMES})=(?=['\d])")
_ALONE = re.compile(r"(?<![\w'-])(latent_dim|context_dim)\b(?!=)")


def in_options(text: str) -> str:
    """Say a message of the library as one of the command line.

    >>> in_options("Lower latent_dim below 3, or name the column in categorical=.")
    'Lower --latent-dim below 3, or name the column in --categorical.'
    >>> in_options("got latent_dim=9; leave it out: drop=['age'], --drop age.")
    'got --latent-dim 9; leave it out: --drop age.'
    """
    for pattern, words in _REWORDED:
        text = pattern.sub(words, text)
    text = _ARGUMENT.sub(lambda found: _option(found[1]), text)
    text = _WITH_VALUE.sub(lambda found: f"{_option(found[1])} ", text)
    return _ALONE.sub(lambda found: _option(found[1]), text)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
