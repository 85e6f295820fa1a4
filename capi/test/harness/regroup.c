// New worlds: of survivors, and of handles that are exchanged by other means.
#include "harness.h"

static void sum(chorus_comm c, int want_rank, int want_size) {
	chorus_comm_info info = {.size = sizeof info};
	OK(chorus_comm_get(c, &info));
	if (info.rank != want_rank || info.world_size != want_size)
		DIE("rank %d of %d, want %d of %d", info.rank, info.world_size, want_rank, want_size);
	int32_t x = 1;
	chorus_op op = reduce_op(CHORUS_ALL_REDUCE, &x, 1, &x, 1);
	OK(chorus_submit(c, &op, NULL));
	EXPECT(x == want_size);
}

void regroup(void) {
	chorus_comm c = join("regroup", 30 * SECOND), next;
	int32_t last = size - 1;
	chorus_regroup_options o = {.size = sizeof o, .without = &last, .n_without = rank == 1, .at_least = 1};
	chorus_op met = {.size = sizeof met, .kind = CHORUS_BARRIER};
	chorus_submit(c, &met, NULL); // an error is another's abort, which has met all, too
	OK(chorus_comm_abort(c, "enough"));
	if (rank == last)
		_exit(0); // without a goodbye
	GETS(CHORUS_INVALID_ARGUMENT, chorus_comm_regroup(c, NULL, &next));
	OK(chorus_comm_regroup(c, &o, &next));
	GETS(CHORUS_FINALIZED, chorus_comm_finalize(c, 0));
	OK(chorus_comm_release(c));
	c = next;
	sum(c, rank, size - 1);

	// Handles, by way of the old world: the same members, in the opposite order.
	const char *mine, *list[8];
	char all[8][1024] = {{0}};
	OK(chorus_comm_handle(c, &mine));
	char own[1024] = {0};
	strncpy(own, mine, sizeof own - 1);
	chorus_op gather = {.size = sizeof gather, .kind = CHORUS_ALL_GATHER_SINGLE, .dtype = CHORUS_UINT8, .in = own, .in_count = sizeof own,
			    .out = all, .out_count = (int64_t)sizeof own * (size - 1)};
	OK(chorus_submit(c, &gather, NULL));
	for (int r = 0; r < size - 1; r++)
		list[size - 2 - r] = all[r];
	chorus_reconfigure_options ro = {.size = sizeof ro, .uuid = "first", .handles = list, .n_handles = size - 1, .timeout_ns = 20 * SECOND};
	OK(chorus_comm_reconfigure(c, &ro, &next));
	OK(chorus_comm_release(c));
	sum(next, size - 2 - rank, size - 1);
	leave(next);

	chorus_comm_options no = {.size = sizeof no, .rank = CHORUS_NO_WORLD, .abort_on_error = 0, .timeout_ns = SECOND / 10};
	OK(chorus_comm_create(&no, &c));
	chorus_comm_info info = {.size = sizeof info};
	OK(chorus_comm_get(c, &info));
	EXPECT(info.rank == -1 && info.world_size == 0);
	o.n_without = 0;
	GETS(CHORUS_TIMEOUT, chorus_comm_regroup(c, &o, &next)); // no world takes it in
	leave(c);
}
