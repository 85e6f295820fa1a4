// A rank of a job whose others are PyTorch's, by the backend "gloo": wire_test.go has what they do.
#include "harness.h"

void wire(void) {
	chorus_store store;
	OK(chorus_store_open(address, 60 * SECOND, &store));
	chorus_hint hint = {"interface", "lo"};
	chorus_comm_options o = {.size = sizeof o, .rank = rank, .world_size = size, .abort_on_error = 0, .backend = "gloo",
				 .store = store, .timeout_ns = 60 * SECOND, .hints = &hint, .n_hints = 1};
	chorus_comm c, part;
	OK(chorus_comm_create(&o, &c));
	chorus_comm_info info = {.size = sizeof info};
	OK(chorus_comm_get(c, &info));
	EXPECT(info.rank == rank && info.world_size == size && !(info.capabilities & CHORUS_CAN_SHARE));

	int32_t x[1000];
	for (int i = 0; i < 1000; i++)
		x[i] = rank + i;
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, x, 1000, x, 1000);
	OK(chorus_submit(c, &op, NULL));
	for (int i = 0; i < 1000; i++)
		EXPECT(x[i] == size * (size - 1) / 2 + size * i);

	op = reduce_op(CHORUS_BROADCAST, NULL, 0, x, 1000);
	OK(chorus_submit(c, &op, NULL)); // from rank 0
	EXPECT(x[0] == 7 && x[999] == 7);

	int32_t mine = 10 * rank, all[8];
	op = reduce_op(CHORUS_ALL_GATHER_SINGLE, &mine, 1, all, size);
	OK(chorus_submit(c, &op, NULL));
	for (int r = 0; r < size; r++)
		EXPECT(all[r] == 10 * r);

	int32_t got = -1;
	chorus_op send = reduce_op(CHORUS_SEND, &mine, 1, NULL, 0), recv = reduce_op(CHORUS_RECV, NULL, 0, &got, 1);
	send.peer = (rank + 1) % size;
	recv.peer = (rank + size - 1) % size;
	send.tag = recv.tag = 5;
	chorus_work sent;
	OK(chorus_submit(c, &send, &sent));
	OK(chorus_submit(c, &recv, NULL));
	OK(chorus_work_wait(sent, -1));
	OK(chorus_work_release(sent));
	EXPECT(got == 10 * recv.peer && recv.source == recv.peer);

	int32_t members[] = {0, rank};
	chorus_split_options s = {.size = sizeof s, .ranks = members, .n_ranks = 2};
	OK(chorus_comm_split(c, &s, &part));
	int32_t one = 1;
	op = reduce_op(CHORUS_ALL_REDUCE, &one, 1, &one, 1);
	OK(chorus_submit(part, &op, NULL));
	EXPECT(one == 2);
	leave(part);

	op = (chorus_op){.size = sizeof op, .kind = CHORUS_BARRIER};
	OK(chorus_submit(c, &op, NULL));
	leave(c);
	OK(chorus_store_release(store));
}
