"""The style of drawn tables, which notebooks and the web UI share.

Everything is below the class `anabranch`, so that it changes nothing else in a notebook. The colours are variables, so
that light and dark are the values of one list.
"""

__all__ = ["STYLE", "in_notebook"]

STYLE = """
.anabranch {
  --paper: #ffffff; --raised: #f6f8fa; --ink: #1f2328; --faint: #59636e; --line: #d1d9e0; --strong-line: #818b98;
  --link: #0550ae; --accent: #0b7285; --accent-ink: #ffffff; --focus: #0969da;
  --added: #dafbe1; --added-ink: #116329; --removed: #ffebe9; --removed-ink: #a40e26;
  --changed: #fff8c5; --changed-ink: #6e4c00; --notice: #ddf4ff; --pill: #eaeef2;
  --mono: ui-monospace, "SFMono-Regular", "DejaVu Sans Mono", Menlo, Consolas, monospace;
}
@media (prefers-color-scheme: dark) {
  .anabranch {
    --paper: #0d1117; --raised: #151b23; --ink: #e6edf3; --faint: #9198a1; --line: #3d444d; --strong-line: #656c76;
    --link: #58a6ff; --accent: #2fb8cc; --accent-ink: #06222a; --focus: #58a6ff;
    --added: #12341f; --added-ink: #7ee2a0; --removed: #46191e; --removed-ink: #ffaba8;
    --changed: #3a2f0b; --changed-ink: #ecc867; --notice: #10263f; --pill: #2a313b;
  }
}
.anabranch .muted { color: var(--faint); }
.anabranch .mono { font-family: var(--mono); font-size: .92em; }
.anabranch .nowrap { white-space: nowrap; }
.anabranch .unseen {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap;
}
.anabranch table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.anabranch th, .anabranch td {
  padding: .3rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
}
.anabranch tbody tr:last-child > * { border-bottom: 0; }
.anabranch thead th { background: var(--raised); font-weight: 600; white-space: nowrap; }
.anabranch tbody th { font-weight: 600; }
.anabranch .num { text-align: right; white-space: nowrap; }
.anabranch .pill {
  display: inline-block; padding: 0 .45em; border-radius: 1em; background: var(--pill); color: var(--ink);
  font-size: .85em; font-weight: normal;
}
.anabranch .pill.branch { background: var(--notice); text-decoration: none; font-weight: 600; }
.anabranch .pill.tag { background: var(--changed); text-decoration: none; }

/* Rows of data: each cell is one line, and a long value is shortened. */
.anabranch .grid td, .anabranch .grid th { font-family: var(--mono); font-size: .92em; white-space: pre; }
.anabranch .grid td { max-width: 40rem; overflow: hidden; text-overflow: ellipsis; }
.anabranch .grid .num { max-width: none; }
.anabranch .grid .null { color: var(--faint); font-style: italic; }
.anabranch .grid .type { display: block; color: var(--faint); font-weight: normal; font-size: .9em; }
.anabranch .grid .whole { font-family: inherit; font-size: .9em; }
.anabranch .added, .anabranch .added > * { background: var(--added); }
.anabranch .removed, .anabranch .removed > * { background: var(--removed); }
.anabranch .mark-added { color: var(--added-ink); font-weight: 650; }
.anabranch .mark-removed { color: var(--removed-ink); font-weight: 650; }
.anabranch .mark-changed { color: var(--changed-ink); font-weight: 650; }
.anabranch td.changed { background: var(--changed); }
.anabranch del.cell { background: var(--removed); color: var(--removed-ink); }
.anabranch ins.cell { background: var(--added); color: var(--added-ink); text-decoration: none; }

/* The graph: rows have the height of their picture. */
.anabranch .graph td {
  height: 30px; padding-top: 0; padding-bottom: 0; vertical-align: middle; border: 0; white-space: nowrap;
}
.anabranch .graph .picture { padding: 0 0 0 .4rem; line-height: 0; }
.anabranch .graph .lanes { display: block; max-width: none; }
.anabranch .graph .message {
  max-width: 50vw; min-width: 12rem; width: 100%; overflow: hidden; text-overflow: ellipsis;
}
.anabranch .graph tbody tr:hover { background: var(--raised); }
"""


def in_notebook(content: str) -> str:
    """Return drawn tables with their style, for a notebook."""
    frame = "background: var(--paper); color: var(--ink); overflow-x: auto; padding: .2rem"
    return f'<div class="anabranch" style="{frame}"><style>{STYLE}</style>{content}</div>'
