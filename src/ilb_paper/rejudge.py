"""Judge a finished reproduction anew, by the rules and marks of this version, without running anything.

    python -m ilb_paper.rejudge docs/results/reproduction/reproduction.json

reads the comparisons in the file, gives every claim its verdict anew, and writes verdicts and counts into the file and
into the `index.html` beside it; figures and tables stay as they are. It prints the counts, and a table of the claims
that are undecided.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ilb.errors import IlbError
from ilb.files import write_whole
from ilb.logs.messages import counted
from ilb.pages.page import Page
from ilb_paper.catalogue import EXPERIMENTS
from ilb_paper.claims import Comparison, Judgement
from ilb_paper.report import Judged, Untested, plain_claims, summarise, untested, write_claim, write_json, write_summary
from ilb_paper.results import Size

Plain = dict[str, Any]


def rejudge(file: Path) -> list[Judged]:
    """Write verdicts anew into a `reproduction.json` and the page beside it; give the judged claims."""
    plain = json.loads(file.read_text())
    judged = read_claims(plain)
    missing = untested([EXPERIMENTS[label] for label in plain["labels"] if label in EXPERIMENTS], judged)
    plain = {**plain, "claims": plain_claims(judged), "not_tested": missing}
    page = file.with_name("index.html")
    anew = _with_verdicts(
        page.read_text(encoding="utf-8"), judged, missing, Size(plain["scale"], plain.get("first_seed", 0))
    )
    write_json(file, plain)
    write_whole(page, anew)
    return judged


def read_claims(plain: Plain) -> list[Judged]:
    """Read the comparisons of a report; words and marks of the claims are those of the catalogue."""
    stored = plain["claims"]
    known = {claim.name: (label, claim) for label, one in EXPERIMENTS.items() for claim in one.claims}
    unknown = [claim["name"] for claim in stored if claim["name"] not in known]
    if unknown:
        raise IlbError(f"the catalogue has no claim {unknown[0]!r}: this file is not one of `ilb reproduce`.")
    kinds = ("comparisons", "released_width", "contrasts")
    return [
        Judged(*known[claim["name"]], Judgement(*(tuple(map(_comparison, claim[kind])) for kind in kinds)))
        for claim in stored
    ]


def _comparison(plain: Plain) -> Comparison:
    difference, error = (math.nan if plain[key] is None else plain[key] for key in ("difference", "standard_error"))
    freedom = math.inf if plain["freedom"] is None else plain["freedom"]
    return Comparison(plain["says"], difference, error, freedom, tuple(plain["worlds"]))


def _with_verdicts(page: str, judged: Sequence[Judged], missing: Sequence[Untested], size: Size) -> str:
    """Put verdicts anew into a page that `write_report` wrote: below its lead, and at the end of every section."""
    head, *sections = re.split(r"(?=<h2)", page)
    summary = Page("")
    write_summary(summary, judged, missing, size)
    if judged:
        head = _exchanged(r"\d+ claims? with a verdict", f"{counted(len(judged), 'claim')} with a verdict", head)
    head = _exchanged(r'(?<=<p class="lead">)([^<]*</p>).*(?=<nav>)', "".join(summary.parts), head)
    return head + "".join(_with_claims(section, judged) for section in sections)


def _exchanged(pattern: str, new: str, text: str, times: int = 1) -> str:
    anew, found = re.subn(pattern, lambda match: "".join(match.groups()) + new, text, flags=re.DOTALL)
    if found != times:
        raise IlbError(f"the page beside the file is not one of `ilb reproduce`: {pattern!r} is there {found} times.")
    return anew


def _with_claims(section: str, judged: Sequence[Judged]) -> str:
    label = re.match(r'<h2 id="(.*?)"', section)
    if label is None:
        return section
    claims = Page("")
    for one in judged:
        if one.label == label[1]:
            write_claim(claims, one)
    return _exchanged(r'<div class="verdict .*?</div>', "", section, len(claims.parts)) + "".join(claims.parts)


def undecided_table(judged: Sequence[Judged]) -> str:
    """Write the undecided claims as a Markdown table: each difference speaks for the paper if it is positive."""
    rows = [
        "| claim | differences ± standard error, for the paper if positive | for it | against |",
        "|---|---|---|---|",
    ]
    leaning = {"all": 0, "some": 0, "none": 0}
    undecided = [j for j in judged if j.claim.counts and j.judgement.verdict == "undecided"]
    for label, claim, judgement in undecided:
        shown = [f"{c.difference:+.3g} ± {c.standard_error:.2g}" for c in judgement.comparisons]
        favourable = sum(c.difference > 0 for c in judgement.comparisons)
        leaning["all" if favourable == len(shown) else "some" if favourable else "none"] += 1
        rows.append(f"| {claim.name} ({label}) | {', '.join(shown)} | {favourable} | {len(shown) - favourable} |")
    says = f"Of {counted(len(undecided), 'undecided claim')}, all differences lean the paper's way in {leaning['all']}"
    return "\n".join([*rows, "", f"{says}, some in {leaning['some']}, none in {leaning['none']}."])


def main(arguments: Sequence[str]) -> None:
    for name in arguments:
        judged = rejudge(Path(name))
        missing = json.loads(Path(name).read_text())["not_tested"]
        lines = [*summarise(judged, missing), "", undecided_table(judged)]
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
