"""Other people's frameworks: the programs of examples/frameworks have the same losses with Gloo and with Chorus."""

import importlib.util
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "frameworks"
spec = importlib.util.spec_from_file_location("frameworks_run", FOLDER / "run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)


@pytest.mark.long
@pytest.mark.parametrize("name", run.PROGRAMS)
def test_same_losses(name):
    if run.version(name) is None:
        pytest.skip(f"{run.PROGRAMS[name][0]} is not installed")
    assert run.compare(name)


def test_a_program_that_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setitem(run.PROGRAMS, "wrong", ("torch", True))
    program = tmp_path / "wrong.py"
    program.write_text("import sys; print('step 0 loss', len(sys.argv[1])); print('backend', sys.argv[1])")
    with pytest.raises(run.Failed, match="the losses differ"):
        run.compare("wrong")
    program.write_text("import sys; print('step 0 loss 1'); print('backend gloo')")
    with pytest.raises(run.Failed, match="wrong with chorus ended with status 0"):
        run.compare("wrong")


def test_a_device_that_changes_the_losses(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "device", lambda: "torch-mine")
    monkeypatch.setitem(run.PROGRAMS, "wrong", ("torch", True))
    told = 'os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")'
    (tmp_path / "wrong.py").write_text(f"import os, sys; print('backend', sys.argv[1]); print('step 0 loss', {told})")
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD", raising=False)
    with pytest.raises(run.Failed, match="the losses differ from those of gloo without torch-mine"):
        run.compare("wrong")


def test_the_table_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    lines = (
        "old\n| [accelerate_loop](x) | accelerate 1 | 8 | torch-mine |\n| [trainer_fit](x) | transformers 1 | 8 | |\n"
    )
    lines += "| [ray_train](x) | ray 1 | 1 | torch-mine |\n"
    page.write_text(f"before\n<!-- frameworks: begin -->\n{lines}<!-- frameworks: end -->\nafter\n")
    rows = {
        "accelerate_loop": ["[accelerate_loop](x)", "accelerate 1", "9", ""],
        "ray_train": ["[ray_train](x)", "ray 2", "1", ""],
        "lightning_fit": ["[lightning_fit](x)", "lightning 2", "8", "torch-mine"],
    }
    run.put(page, rows)
    found = page.read_text()
    assert "| transformers 1 | 8 | |\n" in found, "a program that was left out keeps its row"
    assert "| accelerate 1 | 9 | torch-mine |\n" in found, "what ran beside a device stays, for the same version"
    assert "| ray 2 | 1 | |\n" in found and "| lightning 2 | 8 | torch-mine |\n" in found
    assert "old" not in found and "ray 1" not in found and found.endswith("after\n")
    run.put(page, {})
    assert page.read_text() == found
