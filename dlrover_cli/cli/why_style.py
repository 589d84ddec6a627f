"""How the page about a run looks: light or dark as the reader has it, on a screen or a phone."""

STYLE = """
:root { --ground: #ffffff; --card: #f5f6f8; --ink: #1b1f24; --quiet: #59636e; --line: #d5dae0;
  --good: #2f855a; --failed: #c53030; --taken: #c98a2b; --running: #2b6cb0; --unknown: #8a94a0; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --card: #1e2329; --ink: #e6e9ed; --quiet: #9aa5b1; --line: #39424c;
    --good: #48a97a; --failed: #f0625f; --taken: #d9a24a; --running: #5b9be0; --unknown: #76818c; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 1.8rem 0 .6rem; }
h3 { font-size: 1rem; margin: .8rem 0 .3rem; font-weight: 500; }
header p { margin: .3rem 0; }
.quiet { color: var(--quiet); font-size: .88rem; }
.state { font-size: .8rem; padding: .15rem .6rem; border-radius: 1rem; vertical-align: middle;
  border: 2px solid var(--unknown); white-space: nowrap; }
.state.FINISHED { border-color: var(--good); } .state.RUNNING { border-color: var(--running); }
.state.FAILED, .state.LOST { border-color: var(--failed); }
.state.KILLED { border-color: var(--taken); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(7rem, 1fr)); gap: .6rem; }
.tiles div { background: var(--card); border-radius: .5rem; padding: .6rem .8rem;
  color: var(--quiet); }
.tiles b { display: block; font-size: 1.35rem; color: var(--ink); }
.split { display: flex; gap: 2px; height: 16px; margin: .8rem 0 .4rem; }
.split span { min-width: 2px; flex-basis: 0; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; margin: 0;
  font-size: .85rem; color: var(--quiet); }
.legend i { display: inline-block; width: .75rem; height: .75rem; margin-right: .35rem; }
i.dot { border-radius: 50%; border: 2px solid var(--ink); background: var(--failed); }
.useful, i.good { background: var(--good); } .lost, i.failed { background: var(--failed); }
.starting, i.running { background: var(--running); } i.taken { background: var(--taken); }
.ending, i.unknown { background: var(--unknown); }
.lanes { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: .6rem; }
.labels { padding-top: 20px; font-size: 12px; text-align: right; color: var(--quiet);
  white-space: nowrap; }
.unseen { visibility: hidden; }
.labels div { height: 20px; line-height: 20px; }
svg { display: block; font: 12px system-ui, sans-serif; overflow: visible; }
svg text { fill: var(--quiet); }
rect { stroke-width: 1; }
rect.good { fill: var(--good); stroke: var(--good); }
rect.failed { fill: var(--failed); stroke: var(--failed); }
rect.taken { fill: var(--taken); stroke: var(--taken); }
rect.running { fill: var(--running); stroke: var(--running); }
rect.unknown { fill: var(--unknown); stroke: var(--unknown); }
circle.failure { fill: var(--failed); stroke: var(--ink); stroke-width: 2; }
line.start { stroke: var(--line); }
path.rate { fill: none; stroke: var(--running); stroke-width: 2; vector-effect: non-scaling-stroke;
  stroke-linejoin: round; }
path.under { fill: var(--running); opacity: .15; }
details { background: var(--card); border-radius: .5rem; padding: .5rem .8rem; margin: .4rem 0; }
details details { border: 1px solid var(--line); }
details.verdict { border-left: 4px solid var(--failed); margin-top: 1rem; }
summary { cursor: pointer; }
summary .end { font-weight: 600; }
.end.failed { color: var(--failed); } .end.succeeded { color: var(--good); }
.end.interrupted { color: var(--taken); } .end.running { color: var(--running); }
ul { padding-left: 1.2rem; margin: .4rem 0; }
pre { overflow-x: auto; font: 12.5px/1.45 ui-monospace, monospace; margin: .5rem 0;
  overflow-wrap: normal; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; width: 100%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th, td:nth-child(-n+3) { white-space: nowrap; }
@media (max-width: 40rem) {
  thead { display: none; } tr, td { display: block; } tr { border-bottom: 1px solid var(--line);
    padding: .3rem 0; } td { border: 0; padding: 0; } td:nth-child(-n+3) { white-space: normal; }
  td:first-child::before { content: "attempt "; color: var(--quiet); }
  details { padding: .5rem .6rem; } ul { padding-left: 1rem; }
}
.verdict pre { white-space: pre-wrap; overflow-wrap: anywhere; }
footer { margin-top: 2rem; }
"""
