"""How a report looks: light or dark as the reader's system is, on laptop, phone and paper."""

from __future__ import annotations

LIGHT = """--ink:#1b1f24;--soft:#57606a;--paper:#ffffff;--card:#f5f7f9;--rule:#d9dee3;--accent:#0a5c8a;
--fine:#00785a;--doubtful:#9a5b00;--broken:#b3261e;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b5538c;--c4:#9c7a00;--c5:#56b4e9;--c6:#7a4a2b;--c7:#332288;--cx:#8a8f95;"""

DARK = """--ink:#e6e9ec;--soft:#a3acb5;--paper:#14181c;--card:#1e242a;--rule:#39424b;--accent:#7cc4ee;
--fine:#4fd0a5;--doubtful:#f0b060;--broken:#ff8f84;
--c0:#58b4ea;--c1:#ff9350;--c2:#3fd1a4;--c3:#e69ac6;--c4:#e0c14c;--c5:#a6dbff;--c6:#cf9a76;--c7:#a59cf2;--cx:#8f979f;"""

COLOURS = "".join(f".f{name}{{fill:var(--c{name})}}.s{name}{{stroke:var(--c{name})}}" for name in (*range(8), "x"))

REPORT_STYLE = f"""
:root {{ color-scheme: light dark; {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
@media print {{ :root {{ color-scheme: light; {LIGHT} }} }}
* {{ box-sizing: border-box; }}
body {{ font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 64rem; margin: 0 auto; padding: 2rem 1.2rem 3rem; overflow-wrap: break-word; }}
h1 {{ font-size: 1.75rem; line-height: 1.2; margin: 0 0 .4rem; }}
h2 {{ font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: .8rem; border-top: 1px solid var(--rule); }}
h2 code {{ display: none; }}
h3 {{ font-size: 1.02rem; margin: 1.4rem 0 .3rem; }}
p {{ max-width: 46rem; margin: .5rem 0; }}
p.lead {{ color: var(--soft); font-size: 1.08rem; }}
p.note, figcaption {{ color: var(--soft); font-size: .9rem; }}
a {{ color: var(--accent); }}
nav {{ margin: 1.2rem 0; font-size: .92rem; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; }}
nav a {{ text-decoration: none; }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .8rem; margin: 1.2rem 0; }}
.card {{ background: var(--card); border-radius: .5rem; padding: .8rem 1rem; border-top: 4px solid var(--cx); }}
.card b {{ display: block; font-size: .8rem; color: var(--soft); font-weight: 600; }}
.card strong {{ display: block; font-size: 1.15rem; line-height: 1.3; margin: .15rem 0 .3rem; }}
.card span {{ font-size: .9rem; }}
.card.fine {{ border-color: var(--fine); }} .card.doubtful {{ border-color: var(--doubtful); }}
.card.broken {{ border-color: var(--broken); }}
.pair {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: .4rem 2rem; }}
figure {{ margin: .8rem 0; min-width: 0; }}
figure svg {{ width: 100%; height: auto; display: block; }}
figcaption {{ max-width: 46rem; margin-top: .2rem; }}
svg text {{ font: 12px system-ui, sans-serif; fill: var(--ink); }}
svg .tick {{ fill: var(--soft); font-size: 11px; }} svg .title {{ fill: var(--soft); }}
svg .grid {{ stroke: var(--rule); stroke-width: 1; }} svg .zero {{ stroke: var(--soft); stroke-width: 1.2; }}
svg .line {{ fill: none; stroke-width: 2; stroke-linejoin: round; }}
svg .dashed {{ stroke: var(--soft); stroke-dasharray: 4 4; stroke-width: 1.3; }}
svg .band {{ opacity: .14; }} svg .dot {{ opacity: .78; }} svg .pale {{ opacity: .45; }}
svg .whisker {{ stroke-width: 2.4; stroke-linecap: round; }}
{COLOURS}
.legend {{ display: flex; flex-wrap: wrap; gap: .15rem 1rem; font-size: .88rem; margin: .3rem 0; padding: 0;
  list-style: none; }}
.legend li {{ display: flex; align-items: center; gap: .35rem; }}
.legend svg {{ width: 12px; height: 12px; flex: none; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .88rem; margin: .7rem 0; font-variant-numeric: tabular-nums; }}
th {{ text-align: right; border-bottom: 2px solid var(--soft); padding: .3rem .6rem; vertical-align: bottom;
  font-weight: 600; }}
td {{ text-align: right; border-bottom: 1px solid var(--rule); padding: .28rem .6rem; }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; min-width: 6.5rem; }}
tr.best td {{ font-weight: 650; background: var(--card); }}
.check {{ display: grid; grid-template-columns: 6.2rem 1fr; gap: 0 1rem; padding: .65rem 0;
  border-bottom: 1px solid var(--rule); break-inside: avoid; }}
.check .verdict {{ font-weight: 650; font-size: .92rem; }}
.check .fine {{ color: var(--fine); }} .check .doubtful {{ color: var(--doubtful); }}
.check .broken {{ color: var(--broken); }}
.check h3 {{ margin: 0; font-size: 1rem; }} .check p {{ margin: .15rem 0; font-size: .92rem; }}
.check p.figure {{ color: var(--soft); font-size: .86rem; }}
details {{ margin: .6rem 0; }} summary {{ cursor: pointer; color: var(--accent); font-size: .92rem; }}
pre {{ background: var(--card); border-radius: .4rem; padding: .6rem .8rem; overflow-x: auto; font-size: .85rem; }}
footer {{ margin-top: 3rem; color: var(--soft); font-size: .82rem; border-top: 1px solid var(--rule);
  padding-top: .6rem; }}
@media (max-width: 34rem) {{
  body {{ padding: 1.2rem 1rem 2rem; }} h1 {{ font-size: 1.45rem; }}
  .check {{ grid-template-columns: 1fr; }} th, td {{ padding: .28rem .3rem; }}
  table {{ font-size: .8rem; }} th:first-child, td:first-child {{ min-width: 5rem; }}
  svg text {{ font-size: 14px; }} svg .tick {{ font-size: 13px; }}
  .legend svg text {{ font-size: 12px; }}
}}
@media print {{
  body {{ font-size: 10.5pt; max-width: none; padding: 0; }} nav {{ display: none; }}
  h2 {{ break-after: avoid; }} figure, .card, tr {{ break-inside: avoid; }} .scroll {{ overflow: visible; }}
}}
"""
