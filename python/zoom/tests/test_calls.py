"""The calls that operators make of a GPU's driver, as the emulated one counts them: docs/emulated-gpu.md."""

import ctypes

import pytest
import torch

D = torch.device("zoom")
# The libraries, and the names of what enqueues a kernel, allocates, and looks whether work is done.
FAMILIES = {
    "cuda": ("libcuda.so.1", "cuLaunchKernel", ("cuMemAlloc_v2", "cuMemHostAlloc", "cuMemFree_v2", "cuMemFreeHost"),
             ("cuStreamQuery", "cuEventQuery", "copies that wait")),
    "hip": ("libamdhip64.so.6", "hipModuleLaunchKernel", ("hipMalloc", "hipHostMalloc", "hipFree", "hipHostFree"),
            ("hipStreamQuery", "hipEventQuery", "copies that wait")),
}  # fmt: skip


class Calls:
    """Counts a function's calls of the driver: all, launches, those about allocations, and waits."""

    def __init__(self, family):
        library, self.launch, self.memory, self.wait = FAMILIES[family]
        self.count = ctypes.CDLL(library).emulated_gpu_calls
        self.count.restype, self.count.argtypes = ctypes.c_uint64, [ctypes.c_char_p]

    def now(self):
        names = ((None,), (self.launch,), self.memory, self.wait)
        return [sum(self.count(name and name.encode()) for name in some) for some in names]

    def of(self, f):
        before = self.now()
        result = f()
        return result, *(b - a for a, b in zip(before, self.now(), strict=True))


@pytest.fixture
def calls():
    try:
        return Calls(torch.zoom.get_device_properties(0).library.split()[0].lower())
    except (AttributeError, KeyError, OSError):
        pytest.skip("left out: the device isn't an emulated GPU")


def test_an_operator_on_elements_is_one_launch(calls):
    """CUDA takes the context from the stream; HIP is asked which device is the thread's."""
    most = {"cuLaunchKernel": 1, "hipModuleLaunchKernel": 2}[calls.launch]
    x, y = torch.ones(100, 100, device=D), torch.ones(100, 100, device=D)
    for f in (lambda: x + y, lambda: x.add_(y), lambda: torch.relu(x)):
        f()  # it compiles, and allocates
        torch.zoom.synchronize()
        result, all, launches, memory, waits = calls.of(f)
        assert launches == 1 and all <= most and memory == waits == 0, (all, launches, memory, waits)
        del result


def test_a_training_step_of_a_transformer_waits_for_nothing(calls):
    torch.manual_seed(1)
    words, body, head = torch.nn.Embedding(50, 32), torch.nn.TransformerEncoderLayer(32, 2, 64), torch.nn.Linear(32, 50)
    model = torch.nn.Sequential(words, body, head).to(D)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(50, (8, 2)).to(D)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    for _ in range(3):
        step()
    torch.zoom.synchronize()
    loss, all, launches, memory, waits = calls.of(step)
    assert launches > 50 and all <= 4 * launches and memory == waits == 0, (all, launches, memory, waits)
    value, _, launches, _, waits = calls.of(loss.item)  # which waits
    assert value > 0 and launches == 0 and waits > 0
