"""The names of the package and of PyTorch in the pages exist."""

import importlib.util
import pathlib
import re

import pytest
import torch
import torch.distributed as dist

import chorus

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.skipif(torch.__version__ < "2.13", reason="the pages are about newer versions of PyTorch")
def test_names():
    # The attributes and metrics of adapters/otel are not names of Python.
    attributes = set(re.findall(r'"(chorus\.[a-z.]+)"', (ROOT / "adapters/otel/otel.go").read_text()))
    homes = {"dist": dist, "torch.distributed": dist, "chorus": chorus}
    found = 0
    for page in PAGES:
        text = page.read_text()
        code = re.findall(r"`([^`\n]+)`", re.sub(r"(?s)```.*?```", "", text))
        code = [c for c in code if c not in attributes]
        code += re.findall(r"(?s)```python\n(.*?)```", text)
        named = r"(?<![\w.-])(torch\.distributed|dist|chorus)\.([A-Za-z]\w*)(?![\w:/])"
        for home, name in re.findall(named, "\n".join(code)):
            if (home, name) == ("chorus", "h"):
                continue  # a header
            if home == "chorus" and importlib.util.find_spec(f"chorus.{name}"):
                continue  # a module
            assert hasattr(homes[home], name), f"{page.name}: there is no {home}.{name}"
            found += 1
    assert found > 60, found
