import sys

from scripts.reference.pages import DOCS, written


def main() -> None:
    """Rewrite the pages; with --check only list those that do not match the code."""
    changed = {name: text for name, text in written().items() if (DOCS / name).read_text(encoding="utf-8") != text}
    for name, text in changed.items():
        print(f"docs/{name}")
        if "--check" not in sys.argv:
            (DOCS / name).write_text(text, encoding="utf-8")
    sys.exit(1 if changed and "--check" in sys.argv else 0)


if __name__ == "__main__":
    main()
