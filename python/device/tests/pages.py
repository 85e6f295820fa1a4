"""Tables in pages of docs/ that tests compare with the code."""

import os

from standins import ROOT


def assert_table(page, name, table, test):
    """Assert that a page has the table between its markers. CHORUS_TEST_WRITE=1 writes it; ``test`` is the test's name,
    for the message."""
    path = ROOT / "docs" / page
    before, begin, rest = path.read_text().partition(f"<!-- table: {name} -->\n")
    _, end, after = rest.partition("<!-- end of table -->")
    written = before + begin + table + end + after
    if os.environ.get("CHORUS_TEST_WRITE"):
        path.write_text(written)
    assert path.read_text() == written, f"CHORUS_TEST_WRITE=1 pytest python/device/tests/{test}"
