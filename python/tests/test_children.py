import os
import subprocess
import sys

from children import path_with


def test_a_child_imports_what_the_tests_do(tmp_path, monkeypatch):
    for folder, name in (("given", "both"), ("given", "one"), ("first", "both")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.py").write_text(f"place = {folder!r}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "given"))
    environment = {**os.environ, "PYTHONPATH": path_with(tmp_path / "first")}
    command = [sys.executable, "-S", "-c", "import both, one; print(both.place, one.place)"]
    assert subprocess.check_output(command, env=environment, text=True) == "first given\n"
    monkeypatch.delenv("PYTHONPATH")
    assert path_with("a", "b") == os.pathsep.join("ab")  # no empty part: that would be the current directory
