"""Runs the lines of Python on pages that aren't excerpts of a tested file: ``python page_blocks.py DEVICE PAGE...``.

Each block has the names that its page takes for granted, and a process group of one rank. A line may ask for a GPU
that isn't there, if its error says so.
"""

import ast
import contextlib
import os
import pathlib
import re
import sys
import traceback
from datetime import timedelta

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BLOCK = re.compile(r"^(<!-- from: [^\n]+ -->\n(?:<!-- [^\n]+ -->\n)*)?```python\n(.*?)^```$", re.M | re.S)
NO_GPU = re.compile(r"\bGPUs?\b|CUDA|NVIDIA|NCCL|accelerator support")


def blocks(page: pathlib.Path) -> list[tuple[int, str]]:
    """The blocks of a page that aren't of a file, each with the number of its first line."""
    text = page.read_text()
    return [(text.count("\n", 0, m.start(2)) + 1, m[2]) for m in BLOCK.finditer(text) if not m[1]]


def main(device: str, pages: list[str]) -> None:
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", TORCHCOMM_FR_DUMP_TEMP_FILE="recorded_")
    sys.path.insert(0, str(ROOT / "python" / "accl" / "src"))
    if device == "zoom":
        sys.path.insert(0, str(ROOT / "python" / "zoom" / "tests"))
        import installed

        installed.put()
    wrong = 0
    for page in pages:
        found = blocks(ROOT / page)
        for line, text in found:
            try:
                run(device, page, line, text)
            except Exception:
                wrong += 1
                print(f"{page}:{line}:", traceback.format_exc())
        print(f"{page}: {len(found)}")
    sys.exit(wrong > 0)


def run(device: str, page: str, line: int, text: str) -> None:
    """One block, a statement at a time."""
    import torch
    import torch.distributed as dist

    import chorus
    from chorus import torchcomms
    from chorus.bench.port import free_port
    from chorus.torchcomms import _comms, hooks

    make = dist.init_process_group

    def init_process_group(*args, **kwargs):
        """PyTorch's, for lines that are alternatives."""
        if dist.is_initialized():
            dist.destroy_process_group()
        os.environ["MASTER_PORT"] = str(free_port())
        make(*args, **kwargs)

    init_process_group("chorus")
    place = device or "cpu"
    store = dist.TCPStore("127.0.0.1", free_port(), is_master=True)
    store.set("weights/step", "1200")
    comm = torchcomms.new_comm("gloo", torch.device("cpu"), f"lines{line}")
    names = {
        "torch": torch, "dist": dist, "chorus": chorus, "torchcomms": torchcomms, "hooks": hooks,
        "timedelta": timedelta, "ProfilerActivity": torch.profiler.ProfilerActivity, "rank": 0, "size": 1, "ranks": [0],
        "_BackendWrapper": _comms._BackendWrapper, "group": dist.group.WORLD, "store": store,
        "comm": comm, "step": lambda: x.add_(1),
        "my_sin_": lambda x: x.copy_(x.cpu().sin_()),
    }  # fmt: skip
    x = torch.ones(64, 64, device=place)
    names |= {"x": x, "y": x.clone(), "a": x.clone(), "b": x.clone()}
    dist.init_process_group = init_process_group
    try:
        text = text.replace('"node0", 29500', f'"127.0.0.1", {store.port}')  # the store of the page's Go program
        for statement in ast.parse("\n" * (line - 1) + text).body:
            source = ast.unparse(statement)
            try:
                exec(compile(ast.Module([statement], []), page, "exec"), names)
            except Exception as error:
                if "cuda" not in source or not NO_GPU.search(str(error)):
                    raise
                if isinstance(statement, ast.Assign):
                    break  # for want of that name
                init_process_group("chorus")
    finally:
        dist.init_process_group = make
        if hasattr(dist, "config") and hasattr(dist.config, "use_torchcomms"):
            dist.config.use_torchcomms = False
        if dist.is_initialized():
            dist.destroy_process_group()
        for made in {comm, names["comm"]}:
            with contextlib.suppress(chorus.FinalizedError):
                made.finalize()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
