"""The site of the documentation, in a browser."""

import functools
import http.server
import pathlib
import subprocess
import threading
import urllib.parse

import pytest
from browser import Browser, chromium
from worlds import longest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = ROOT / "out" / "site"
REPOSITORY = "https://github.com/chorus-comms/chorus/"

pytestmark = longest

# A page's facts: links and loaded files, anchors, and how much wider it is than the window.
FACTS = """({
    links: [...document.querySelectorAll("a[href], link[href]:not([rel=canonical])")].map(e => e.getAttribute("href")),
    loads: [...document.querySelectorAll("img[src], script[src]")].map(e => e.getAttribute("src")),
    anchors: [...document.querySelectorAll("[id], a[name]")].map(e => e.id || e.name),
    broken: [...document.images].filter(e => e.complete && !e.naturalWidth).map(e => e.src),
    wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    widest: [...document.body.querySelectorAll("article *")]
        .filter(e => e.getBoundingClientRect().right > innerWidth + 1
            && !e.closest("pre, .md-typeset__scrollwrap, .md-typeset__table, nav"))
        .slice(0, 3).map(e => e.outerHTML.slice(0, 200)),
    files: [...document.querySelectorAll("article a")].map(e => e.textContent)
        .filter(text => /^[\\w-]+\\.md$/.test(text)),
    small: [...document.querySelectorAll("article img[src$='.svg']")].filter(e => e.width < 600).map(e => e.src),
    words: document.querySelector("article").innerText.split(/\\s+/).length,
})"""

# Blocks of commands and code on the first screen that need scrolling.
CUT = """[...document.querySelectorAll("article pre code")].filter(e => e.getBoundingClientRect().bottom < innerHeight
    && e.scrollWidth > e.clientWidth).map(e => e.innerText)"""


@pytest.fixture(scope="module")
def site():
    """The address of the site, built anew and served."""
    chromium()
    done = subprocess.run(["make", "site-tools"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"what makes the site can't be installed: {done.stderr[-500:]}")
    done = subprocess.run(["make", "site"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert "WARNING" not in done.stderr, done.stderr
    handler = functools.partial(Quiet, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def pages():
    """Every page except the one for missing pages, whose links are absolute."""
    return sorted(p.relative_to(SITE).as_posix() for p in SITE.rglob("*.html") if p.name != "404.html")


def wrong_outside(link):
    """The error of a link that leaves the site, found without a network request; None if it has none."""
    url = urllib.parse.urlsplit(link)
    if url.scheme == "mailto":
        return None if "@" in url.path else "not an address"
    if url.scheme not in ("https", "http"):
        return "unknown scheme"
    if not url.hostname or ("." not in url.hostname and url.hostname != "localhost") or " " in link:
        return "not an address"
    if link.startswith(REPOSITORY):
        kind, _, path = url.path.removeprefix("/chorus-comms/chorus/").partition("/main/")
        if kind in ("blob", "tree", "raw") and not (ROOT / urllib.parse.unquote(path)).exists():
            return "the repository doesn't have that"
    return None


def test_bad_page(tmp_path):
    """Every defect that `test_site` checks is found on a page that has all of them."""
    page = tmp_path / "bad.html"
    page.write_text("""<body><article><img src="none.png"><p id="a" style="width: 500px">wide</p>
        <script>console.error("oh"); null.x</script></article></body>""")
    with Browser() as browser:
        browser.open(page.as_uri(), 390, 844)
        fact, said = browser.evaluate(FACTS), " ".join(browser.complaints)
    assert "oh" in said and "TypeError" in said and "ERR_FILE_NOT_FOUND" in said, said
    assert fact["wider"] > 0 and fact["widest"] and len(fact["broken"]) == 1 and fact["anchors"] == ["a"], fact
    assert wrong_outside(REPOSITORY + "blob/main/nowhere.md") and wrong_outside("https://nowhere/") and wrong_outside("ftp://x.org")
    assert not wrong_outside(REPOSITORY + "blob/main/README.md#go") and not wrong_outside("https://pytorch.org/docs")


def test_site(site, tmp_path):
    """Every page: no broken link, a silent console, and nothing wider than a phone."""
    wrong, facts = [], {}
    with Browser() as browser:
        for page in pages():
            browser.open(site + page, 390, 844)
            facts[page] = fact = browser.evaluate(FACTS)
            wrong += [f"{page}: the console says: {text}" for text in browser.complaints]
            wrong += [f"{page}: no such picture: {src}" for src in fact["broken"]]
            wrong += [f"{page}: a link reads {name}, which is no page's title" for name in fact["files"]]
            wrong += [f"{page}: the words in {src} are too small to read" for src in fact["small"]]
            if fact["wider"] > 0:
                wrong.append(f"{page}: {fact['wider']} px wider than a phone: {fact['widest']}")
            if page in ("index.html", "pytorch.html", "go/comm.html", "python/chorus.html"):
                name = page.replace("/", "-").removesuffix(".html")
                browser.picture(tmp_path / f"{name}-390.png")
                browser.open(site + page, 1280, 900)
                browser.picture(tmp_path / f"{name}-1280.png")
                if (cut := browser.evaluate(CUT)) and "/" not in page:
                    wrong.append(f"{page}: what a newcomer copies doesn't fit in a window of 1280 px: {cut}")
    for page, fact in facts.items():
        for link in {*fact["links"], *fact["loads"]}:
            url = urllib.parse.urlsplit(urllib.parse.urljoin(site + page, link))
            if f"{url.scheme}://{url.netloc}/" != site:
                if problem := wrong_outside(link):
                    wrong.append(f"{page}: {link}: {problem}")
                continue
            target = urllib.parse.unquote(url.path).lstrip("/") or "index.html"
            target = target + "index.html" if target.endswith("/") else target
            if not (SITE / target).is_file():
                wrong.append(f"{page}: {link}: no such page")
            elif (
                url.fragment and target in facts and urllib.parse.unquote(url.fragment) not in facts[target]["anchors"]
            ):
                wrong.append(f"{page}: {link}: no such place in {target}")
    assert not wrong, "\n".join(wrong)
    # All parts are there, including generated ones.
    assert len(facts) > 60, sorted(facts)
    for page, anchor in (
        ("go/comm.html", "Comm.AllReduce"),
        ("python/chorus.html", "chorus.empty"),
        ("python/torchcomms.html", "chorus.torchcomms.new_comm"),
    ):
        assert anchor in facts[page]["anchors"], (page, facts[page]["anchors"])
    assert facts["index.html"]["words"] > 300
