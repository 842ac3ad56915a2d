"""Changes to the HTML of the guide's pages, which MkDocs calls while it builds the site."""

import re

__all__ = ["on_page_content"]

# Code within a line. Blocks of code contain tags, or have no tag of this form.
_INLINE_CODE = re.compile(r"<code>([^<\n]*)</code>")
_WORD_WITH_HYPHEN = re.compile(r"[^\s<]*-[^\s<]*")
# A longer word may break: it would be wider than a phone.
_MAX_WORD = 30
# Pictures of the web UI exist in light and in dark.
_PICTURE = re.compile(r'<img alt="([^"]*)" src="([^"]*img/ui/[a-z-]+)-light\.png" />')


def on_page_content(html: str, **_: object) -> str:
    """Keep options such as --dry-run in one line, and show a dark picture of the web UI on a dark page."""
    html = _INLINE_CODE.sub(lambda found: f"<code>{_WORD_WITH_HYPHEN.sub(_unbroken, found[1])}</code>", html)
    return _PICTURE.sub(
        r'<img alt="\1" src="\2-light.png#only-light" /><img alt="\1" src="\2-dark.png#only-dark" />', html
    )


def _unbroken(word: re.Match[str]) -> str:
    # A browser may break a line after each hyphen, also after the first one of an option.
    return f'<span class="word">{word[0]}</span>' if len(word[0]) <= _MAX_WORD else word[0]
