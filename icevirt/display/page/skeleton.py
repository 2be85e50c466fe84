"""Put sections into one page that needs neither a network nor scripts.

The page follows the reader's choice of a dark or light color scheme, works with the keyboard (its
parts that fold are `details`), and repeats in words what its pictures show.
"""

from __future__ import annotations

from collections.abc import Iterable

from icevirt.escaping import escape_html

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --back: #ffffff;
  --line: #d9dee5; --panel: #f5f7fa; --virtual: #2f6fb3; --native: #d9822b; --inline: #3a9b6f;
  --none: #eceff3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --back: #14181e;
  --line: #303844; --panel: #1c222b; --virtual: #6aa9e9; --native: #f0a860; --inline: #6ccb9d;
  --none: #2a313b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--back);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
p { margin: .25rem 0 .75rem; }
.soft, figcaption, th { color: var(--soft); font-weight: normal; }
section { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
td { font-variant-numeric: tabular-nums; }
code, pre, .name { font-family: ui-monospace, monospace; font-size: .88rem; }
pre { background: var(--panel); padding: .75rem; overflow-x: auto; border-radius: 6px; }
figure { margin: 0; }
.row { display: grid; grid-template-columns: minmax(6rem, 14rem) 1fr 4.5rem; gap: .75rem;
  align-items: center; }
.row .name { overflow-wrap: anywhere; } .row .share { text-align: right; color: var(--soft);
  font-size: .85rem; }
.row svg { width: 100%; height: 18px; display: block; }
.ticks { display: flex; justify-content: space-between; color: var(--soft); font-size: .8rem; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .35em 0 0; }
.keys span { margin-right: 1.2rem; white-space: nowrap; }
.virtual { fill: var(--virtual); background: var(--virtual); }
.native { fill: var(--native); background: var(--native); }
.inline { fill: var(--inline); background: var(--inline); }
.none { fill: var(--none); background: var(--none); }
details { margin: .35rem 0; } summary { cursor: pointer; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--virtual); outline-offset: 2px; }
a { color: var(--virtual); }
nav a { margin-right: 1rem; }
@media (max-width: 40rem) { .row { grid-template-columns: 1fr; gap: .1rem; }
  .row .share { text-align: left; } body { padding: 1rem; } }
"""


def page(title: str, lead: str, sections: Iterable[tuple[str, str]]) -> str:
    """Return an HTML document.

    Args:
        title: What the page is about.
        lead: A sentence below it.
        sections: Headings with HTML; those without any are left out.
    """
    shown = [(heading, html) for heading, html in sections if html]
    links = " ".join(
        f'<a href="#section-{number}">{escape_html(heading)}</a>'
        for number, (heading, _) in enumerate(shown)
    )
    parts = "\n".join(
        f'<section id="section-{number}"><h2>{escape_html(heading)}</h2>\n{html}</section>'
        for number, (heading, html) in enumerate(shown)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape_html(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<header><h1>{escape_html(title)}</h1>\n<p class="soft">{escape_html(lead)}</p>\n'
        f'<nav aria-label="Sections">{links}</nav></header>\n<main>\n{parts}\n</main>\n'
        "</body>\n</html>\n"
    )


def folded(title: str, html: str, *, is_open: bool = False) -> str:
    """Return a part that opens by a click or a key."""
    shown = " open" if is_open else ""
    return (
        f"<details{shown}><summary>{escape_html(title)}</summary>\n{html}</details>" if html else ""
    )
