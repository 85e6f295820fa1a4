"""Tests that fail, and why. docs/pytorch-conformance.md lists them, too."""

FAILS: dict[str, str] = {
    "test_monitored_barrier_gloo": "torch.distributed.monitored_barrier refuses every backend that isn't Gloo",
}
