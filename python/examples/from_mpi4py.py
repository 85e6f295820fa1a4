"""The most common calls of mpi4py programs, with torch.distributed. Run it on two ranks or more:

    torchrun --nproc-per-node 2 python/examples/from_mpi4py.py
"""

import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("chorus")
rank, size = dist.get_rank(), dist.get_world_size()

# comm.bcast(obj, root=0)
box = [{"rate": 0.1} if rank == 0 else None]
dist.broadcast_object_list(box, src=0)
config = box[0]

# comm.Allreduce(MPI.IN_PLACE, a, op=MPI.SUM): the tensor is the array's memory.
a = np.full(1000, float(rank))
dist.all_reduce(torch.from_numpy(a))

# comm.Scatter(parts, mine, root=0), comm.Gather(mine, parts, root=0)
parts = list(torch.arange(4.0 * size).chunk(size)) if rank == 0 else None
mine = torch.empty(4)
dist.scatter(mine, parts, src=0)
back = [torch.empty(4) for _ in range(size)] if rank == 0 else None
dist.gather(mine, back, dst=0)

# comm.Sendrecv(mine, dest=right, recvbuf=theirs, source=left)
theirs = torch.empty(4)
right, left = (rank + 1) % size, (rank - 1) % size
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, right), dist.P2POp(dist.irecv, theirs, left)]):
    work.wait()

# comm.Split(color=rank % 2, key=rank): every rank calls new_group for every part.
for color in range(2):
    members = [r for r in range(size) if r % 2 == color]
    group = dist.new_group(members)
    if rank in members:
        part = group
ones = torch.ones(1)
dist.all_reduce(ones, group=part)

print(
    f"rank {rank}: {config}, sum {a[0]:.0f}, mine {mine.tolist()}, theirs {theirs.tolist()}, "
    f"{ones.item():.0f} in my part"
)
dist.destroy_process_group()
