"""How the page looks: at desktop and phone width, in light and dark."""

STYLE = """\
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1c1e21; --faint: #5b6169; --line: #d9dce1; --card: #f6f7f9;
  --link: #0b5cad; --right: #0a6b3d; --wrong: #b3261e; --head: #eceef2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181c; --ink: #e6e8eb; --faint: #a3aab3; --line: #3a3f47; --card: #1f2227;
    --link: #7db7f5; --right: #6bd49b; --wrong: #ff938a; --head: #2a2e35;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  overflow-wrap: break-word;
}
a { color: var(--link); }
header, .columns { max-width: 1240px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 28px; }
header p { max-width: 72ch; color: var(--faint); margin-top: 0; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.45rem; line-height: 1.25; margin: 0 0 .8rem; }
h3 { font-size: 1.13rem; margin: 2rem 0 .5rem; }
h4 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
h2, h3, h4 { scroll-margin-top: 12px; }
.up { text-decoration: none; font-size: .8em; color: var(--faint); }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 8px; top: 8px; background: var(--paper); padding: 4px 8px; }
.columns { display: grid; grid-template-columns: 230px minmax(0, 1fr); gap: 40px; }
nav {
  position: sticky; top: 0; align-self: start; max-height: 100vh; overflow-y: auto;
  padding: 20px 0; font-size: .87rem; line-height: 1.35;
}
nav h2 { font-size: .8rem; color: var(--faint); margin: 0 0 .5rem; letter-spacing: .04em; }
nav ol, nav ul { list-style: none; margin: 0; padding: 0; }
nav ol > li { margin-bottom: .55rem; }
nav ol > li > a { font-weight: 600; }
nav ul li { padding: .12rem 0 .12rem .8rem; border-left: 2px solid var(--line); }
nav a { text-decoration: none; color: var(--ink); }
nav a:hover { color: var(--link); text-decoration: underline; }
section { padding: 22px 0 30px; border-top: 1px solid var(--line); }
section:first-child { border-top: 0; }
section > p, section > ul, section > ol { max-width: 78ch; }
section > p:has(> .figure) { max-width: none; }
.scroll { display: block; overflow-x: auto; max-width: 100%; }
.scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.table { margin: 1rem 0; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; font-size: .84rem; line-height: 1.4; min-width: 100%; }
th, td { padding: .4rem .6rem; vertical-align: top; font-variant-numeric: tabular-nums; }
td[style*="right"] { white-space: nowrap; }
th { background: var(--head); text-align: left; font-weight: 600; }
td { border-top: 1px solid var(--line); }
th:first-child, td:first-child { min-width: 8.4rem; max-width: 26rem; overflow-wrap: anywhere; }
.figure { margin: 1rem 0; padding: 6px; background: #ffffff; border: 1px solid var(--line);
  border-radius: 8px; }
/* Letters of a plot are then as large as those of the text. */
.figure img { display: block; width: calc(var(--natural) * .72); max-width: 100%;
  height: auto; margin: 0 auto; }
code, pre { font: .86em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
code { background: var(--head); padding: .1em .3em; border-radius: 4px; }
pre { background: var(--card); padding: .7rem; border-radius: 6px; overflow-x: auto; }
.problem { border: 1px solid var(--line); border-radius: 10px; padding: 4px 16px 16px;
  margin: 1.2rem 0; }
.problem h3 { margin: .9rem 0 .2rem; font-size: 1rem; }
.question { max-width: 78ch; }
.answers { display: grid; gap: 10px; grid-template-columns: repeat(auto-fill, minmax(230px, 1fr)); }
.answer { background: var(--card); border: 1px solid var(--line); border-left-width: 4px;
  border-radius: 6px; padding: 8px 10px; }
.answer.right { border-left-color: var(--right); }
.answer.wrong { border-left-color: var(--wrong); }
.answer h4 { margin: 0 0 .3rem; font-size: .86rem; display: flex; gap: 8px;
  justify-content: space-between; }
.right .verdict { color: var(--right); }
.wrong .verdict { color: var(--wrong); }
.answer pre { margin: 0; padding: 0; background: none; white-space: pre-wrap;
  overflow-wrap: anywhere; }
@media (max-width: 860px) {
  header, .columns { padding-left: 16px; padding-right: 16px; }
  .columns { display: block; }
  nav { position: static; max-height: none; padding: 12px 0 4px; font-size: .95rem; }
  nav ul { display: none; }
  h1 { font-size: 1.5rem; }
  h2 { font-size: 1.28rem; }
  th, td { padding: .35rem .55rem; }
  th:first-child, td:first-child { min-width: 7.6rem; max-width: 9.5rem;
    position: sticky; left: 0; }
  td:first-child { background: var(--paper); border-right: 1px solid var(--line); }
  /* Half of its pixels keep a plot's letters readable; it scrolls in its box. */
  .figure img { max-width: none; width: max(100%, calc(var(--natural) * .5)); }
}
@media print { nav, .up { display: none; } .columns { display: block; } }
"""
