"""A headless Chromium, controlled by its DevTools protocol over a pair of pipes."""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

import pytest

# A shell opens the pipes at the descriptors that the browser uses: it reads 3 and writes to 4.
PLACE = 'exec 3<"$0" 4>"$1"; shift; exec "$@" >/dev/null 2>&1'


def chromium():
    """The browser's path; skips the test if there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not path:
        pytest.skip("there is no browser here: apt-get install chromium")
    return path


class Browser:
    """One page of a browser of its own; `complaints` has messages of its console and network since the last `open`."""

    def __init__(self, patience=60):
        program = chromium()
        self.patience, self.complaints = patience, []
        self._number, self._rest, self._loaded = 0, b"", False
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        pipes = [os.path.join(self._home.name, name) for name in ("to", "from")]
        for pipe in pipes:
            os.mkfifo(pipe)
        self._process = subprocess.Popen(
            ["sh", "-c", PLACE, *pipes, program, "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={self._home.name}/profile", "about:blank"]
        )  # fmt: skip
        # In the order in which the shell opens them, as each end waits for the other.
        self._to, self._from = os.open(pipes[0], os.O_WRONLY), os.open(pipes[1], os.O_RDONLY)
        self._session = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._home.cleanup()

    def call(self, method, **params):
        """The browser's answer to a method of its protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.patience
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, params, answer)
                return answer["result"]

    def open(self, url, width, height):
        """Show a page in a window of that size, and wait until it's loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.complaints, self._loaded = [], False
        problem = self.call("Page.navigate", url=url).get("errorText")
        assert not problem, (url, problem)
        until = time.monotonic() + self.patience
        while not self._loaded:
            self._next(until)

    def evaluate(self, code):
        """The value of a JavaScript expression; of a promise, its result."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path):
        """Save a screenshot of the window as a PNG."""
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _next(self, until):
        """The next message; records events."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0, until - time.monotonic()))
            assert ready, f"the browser says nothing for {self.patience} s"
            chunk = os.read(self._from, 1 << 20)
            assert chunk, "the browser is gone"
            self._rest += chunk
        text, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(text)
        self._note(message.get("method"), message.get("params"))
        return message

    def _note(self, event, params):
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif event == "Network.loadingFailed" and not params.get("canceled"):
            self.complaints.append(f"{params['type']}: {params['errorText']}")
