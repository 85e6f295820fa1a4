import pytest
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from training import batch, compare, model

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
interleaved = pytest.mark.skipif(
    VERSION < (2, 7), reason="Gloo of PyTorch 2.6, to compare with, doesn't come to an end"
)


def _train(peers, group, schedule_of):
    """One stage per rank: activations go forward as messages, gradients back."""
    torch.manual_seed(0)
    whole = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(peers.size - 1)]
    part = [*whole, model()][peers.rank]
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
    stage = PipelineStage(part, peers.rank, peers.size, torch.device("cpu"), group=group)
    schedule = schedule_of(stage, n_microbatches=3, loss_fn=torch.nn.functional.mse_loss)
    history = []
    for step in range(3):
        x, y = batch(0, step)
        losses = []
        if peers.rank == 0:
            schedule.step(x)
        elif peers.rank == peers.size - 1:
            schedule.step(target=y, losses=losses)
            assert len(losses) == 3
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        history.append([p.detach().clone() for p in part.parameters()])
    return history


def _compare(peers, schedule_of):
    ours, theirs = (_train(peers, group, schedule_of) for group in (dist.group.WORLD, peers.gloo))
    compare(ours, theirs, 1)  # nothing is reduced between ranks


@pytest.mark.parametrize("schedule_of", [ScheduleGPipe, pytest.param(Schedule1F1B, marks=interleaved)])
def test_like_gloo(pair, schedule_of):
    pair.run(_compare, schedule_of)


@pytest.mark.long
@interleaved
def test_three_stages():
    from worlds import world_of

    world_of(3).run(_compare, Schedule1F1B)
