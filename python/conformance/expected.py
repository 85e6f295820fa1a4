"""Tests that must fail, and why. docs/pytorch-conformance.md lists them, too."""

FAILS: dict[str, str] = {
    "test_barrier_timeout_full_group": "it looks for other words in the error, which says that the barrier timed out",
    "test_monitored_barrier_gloo": "torch.distributed.monitored_barrier refuses every backend that isn't Gloo",
    "test_monitored_barrier_gloo_rank_0_timeout": "it looks for other words in the error, which says that the barrier timed out",  # noqa: E501
    "test_monitored_barrier_gloo_subgroup": "torch.distributed.monitored_barrier refuses every backend that isn't Gloo",
}
