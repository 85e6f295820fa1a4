"""Programs of several ranks that start at once: their processes are forked from one that has imported PyTorch."""

import json
import os
import runpy
import signal
import subprocess
import sys


class Server:
    """A process that has imported PyTorch, with environment variables such as CHORUS_LIBRARY."""

    def __init__(self, **environment):
        self.process = subprocess.Popen(
            [sys.executable, __file__], env={**os.environ, **environment}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, directory, script, ranks, *args, seconds=120, **environment):
        """Run a script on ``ranks`` ranks, and return their output, their errors and their exit statuses."""
        outputs = [[str(directory / f"{kind}{r}") for kind in ("out", "err")] for r in range(ranks)]
        common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        job = {
            "script": str(script), "args": args, "seconds": seconds, "outputs": outputs,
            "environments": [{**common, "RANK": r, "LOCAL_RANK": r, **environment} for r in range(ranks)],
        }  # fmt: skip
        print(json.dumps(job), file=self.process.stdin, flush=True)
        statuses = json.loads(self.process.stdout.readline())
        out, err = ("".join(open(files[i]).read() for files in outputs) for i in range(2))
        return out, err, statuses

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


def child(job, rank):
    """Run one rank; the process ends with it."""
    signal.alarm(job["seconds"])
    for number, path in enumerate(job["outputs"][rank], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update({k: str(v) for k, v in job["environments"][rank].items()})
    sys.argv = [job["script"], *job["args"]]
    sys.path.insert(0, os.path.dirname(job["script"]))
    runpy.run_path(job["script"], run_name="__main__")


def serve():
    import pytest  # noqa: F401
    import torch._dynamo  # a first Meta kernel imports it
    import torch.distributed  # noqa: F401

    reports = os.fdopen(os.dup(1), "w")
    for line in iter(sys.stdin.readline, ""):
        job = json.loads(line)
        children = []
        for rank in range(len(job["outputs"])):
            if (pid := os.fork()) == 0:
                child(job, rank)
                return
            children.append(pid)
        print(json.dumps([os.waitpid(pid, 0)[1] for pid in children]), file=reports, flush=True)


if __name__ == "__main__":
    serve()
