"""The documentation site, built by `make site` from the pages of this folder."""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent
CODE = "https://github.com/xformc/xformc/blob/main"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/search.md": "the_search.md",  # search.html is Sphinx's own page
}
"""Files that are not pages themselves, and the page that includes each."""

LINK = re.compile(r'(?P<opening>\]\(|<img src=")(?P<path>[^)"#:\s]+)')

project = "xformc"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["search.md"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]
"""Types in signatures, which the API page need not describe."""

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
highlight_language = "none"
default_role = "code"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "xformc"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "source_repository": "https://github.com/xformc/xformc/",
    "source_branch": "main",
    "source_directory": "docs/",
}


def link_files(text: str, source: Path, page: Path) -> str:
    """The text of `source` with its links as they must be in `page`: to pages of the site, else to the code host.

    A link to what does not exist stays as it is, and fails the build.
    """

    def link(found: re.Match[str]) -> str:
        path = Path(os.path.normpath(source.parent / found["path"]))
        if not path.exists():
            return found[0]
        path = DOCS / PAGES.get(str(path.relative_to(ROOT)), path)
        if path.is_dir() and path.is_relative_to(DOCS):
            path /= "README.md"
        if not path.is_relative_to(DOCS):
            return f"{found['opening']}{CODE}/{path.relative_to(ROOT)}"
        return found["opening"] + os.path.relpath(path, page.parent)

    return LINK.sub(link, text)


def read_page(app: Sphinx, name: str, content: list[str]) -> None:
    """Link what a page of this folder links to."""
    page = app.env.doc2path(name)
    content[0] = link_files(content[0], page, page)


def read_included(app: Sphinx, file: Path, name: str, content: list[str]) -> None:
    """Link what a file outside this folder links to, where a page includes it."""
    content[0] = link_files(content[0], Path(os.path.normpath(DOCS / file)), DOCS / name)


def list_fields(app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """In docstrings, `field: text` with indented lines below becomes an item of a list, and `Raises:` bold."""
    for index, line in enumerate(lines):
        lines[index] = re.sub(r"^([a-z_]+(?:, [a-z_]+)*): ", r"* `\1`: ", re.sub(r"^Raises:", "**Raises:**", line))


def hide_arguments(app: Sphinx, what: str, *found: object) -> tuple[str, None] | None:
    """Show classes without the arguments of their constructors: functions make the objects."""
    *_, arguments, _ = found
    return ("", None) if what == "class" and arguments else None


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    app.connect("autodoc-process-docstring", list_fields)
    app.connect("autodoc-process-signature", hide_arguments)
