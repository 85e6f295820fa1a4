"""How pages of the repository become pages of the site. MkDocs calls these functions while it builds.

Pages are plain Markdown that GitHub shows as well. The hooks add pages from outside of docs/, and turn links that leave the site
into links to the repository. The pages of the references come from `goref`'s output and from the names that the package chorus exports.
"""

from __future__ import annotations

import ast
import logging
import pathlib
import posixpath
import urllib.parse
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parent.parent
GENERATED = ROOT / "out" / "site-pages"  # where `make site` has goref write
log = logging.getLogger("mkdocs.hooks.chorus")

# Pages that aren't in docs/: where each is in the repository, and its name here.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "examples/README.md": "examples.md",
}
_SOURCES = {name: path for path, name in OUTSIDE.items()}

# The pages of the Python reference that are one module each.
MODULES = {"torchcomms": "chorus.torchcomms"}

# Titles of the modules behind the package chorus, in the order of its page.
TITLES = {
    "backend": "Groups",
    "process_group": "What groups are made of",
    "memory": "Memory that peers can map",
    "ddp": "Training",
    "_patches": "What is changed in PyTorch",
    "errors": "Errors",
    "_lib": "The library",
}


def source(page: Page) -> str | None:
    """Where the text of a page is in the repository, None if it is generated."""
    uri = page.file.src_uri
    if uri in _SOURCES:
        return _SOURCES[uri]
    return None if page.file.generated_by else f"docs/{uri}"


def python_page() -> str:
    """The page of the package chorus: all that it exports, by what it is about."""
    tree = ast.parse((ROOT / "python/chorus/__init__.py").read_text())
    homes: dict[str, tuple[str, ...]] = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "_HOME"
    )
    if missing := homes.keys() - TITLES.keys():
        log.warning("site/hooks.py has no title for what chorus exports from %s", ", ".join(sorted(missing)))
    lines = ["# chorus", "", "::: chorus", "    options:", "      members: false", "      show_root_heading: false", "      show_root_toc_entry: false", ""]
    for module, title in TITLES.items():
        lines += [f"## {title}", ""]
        for name in homes.get(module, ()):
            lines += [f"::: chorus.{name}", ""]
    return "\n".join(lines)


def on_config(config: MkDocsConfig) -> None:
    """Adds the Go packages to the navigation, and our links to Markdown."""
    packages = sorted(path.relative_to(GENERATED).as_posix() for path in GENERATED.glob("go/**/*.md"))
    if not packages:
        raise SystemExit(f"there are no pages of Go packages in {GENERATED}: use `make site`")
    entries: list[Any] = ["go/index.md"]
    entries += [{name.removeprefix("go/").removesuffix(".md"): name} for name in packages if name != "go/index.md"]
    assert config.nav is not None
    for part in config.nav:
        for section in part.values():
            for entry in section:
                if isinstance(entry, dict) and entry.get("Go") == "go/":
                    entry["Go"] = entries
    config.markdown_extensions.append(_links)  # type: ignore[arg-type]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that aren't in docs/."""
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text()))
    for path in GENERATED.glob("go/**/*.md"):
        files.append(File.generated(config, path.relative_to(GENERATED).as_posix(), content=path.read_text()))
    files.append(File.generated(config, "python/chorus.md", content=python_page()))
    for name, module in MODULES.items():
        text = f"# {module}\n\n::: {module}\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n      heading_level: 2\n"
        files.append(File.generated(config, f"python/{name}.md", content=text))
    for name in ("site.css", "logo.svg"):
        files.append(File.generated(config, name, content=(ROOT / "site" / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Says which page the links are of that follow."""
    _links.page, _links.files, _links.repository = page, files, config.repo_url or ""


class Links(Extension):
    """Makes links of a page's text into links of the site, or to the repository."""

    page: Page
    files: Files
    repository: str

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(_Rewriter(self), "repository", 1)  # before MkDocs looks at them, at 0

    def rewritten(self, link: str, image: bool) -> str:
        """The target on the site of a link of the text."""
        home, url = source(self.page), urllib.parse.urlsplit(link)
        if home is None or url.scheme or url.netloc or not url.path:
            return link
        path = posixpath.normpath(posixpath.join(posixpath.dirname(home), urllib.parse.unquote(url.path)))
        name = OUTSIDE.get(path, path.removeprefix("docs/"))
        if (path in OUTSIDE or path.startswith("docs/")) and self.files.get_file_from_path(name):
            new = posixpath.relpath(name, posixpath.dirname(self.page.file.src_uri) or ".")
            return urllib.parse.urlunsplit(url._replace(path=new))
        if not (ROOT / path).exists():
            log.warning("%s links to %s, which the repository doesn't have", home, link)
        kind = "tree" if (ROOT / path).is_dir() else "raw" if image else "blob"
        return urllib.parse.urlunsplit(url._replace(path=f"{self.repository}/{kind}/main/{path}"))

    def title(self, link: str) -> str | None:
        """The title, as the navigation has it, of the page that a rewritten link leads to."""
        path = posixpath.join(posixpath.dirname(self.page.file.src_uri), urllib.parse.urlsplit(link).path)
        file = self.files.get_file_from_path(posixpath.normpath(path))
        return file.page.title if file and file.page and isinstance(file.page.title, str) else None


class _Rewriter(Treeprocessor):
    def __init__(self, links: Links) -> None:
        super().__init__()
        self.links = links

    def run(self, root: Element) -> None:
        for element in root.iter():
            for name in "href", "src":
                if link := element.get(name):
                    element.set(name, self.links.rewritten(link, name == "src"))
            if element.tag == "a" and element.text and element.text.endswith(".md"):
                element.text = self.links.title(element.get("href", "")) or element.text


_links = Links()
