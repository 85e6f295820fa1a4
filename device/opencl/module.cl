// The functions that package devicetest launches, in OpenCL C.

int number(void) {
	int group = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
	int item = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));
	return item + group * (int)(get_local_size(0) * get_local_size(1) * get_local_size(2));
}

int items(void) { return get_global_size(0) * get_global_size(1) * get_global_size(2); }

kernel void add(global int *out, global const int *a, global const int *b, int n) {
	for (int i = number(); i < n; i += items())
		out[i] = a[i] + b[i];
}

kernel void accumulate(global int *out, int n) {
	for (int i = number(); i < n; i += items())
		out[i] += 1;
}

struct pair {
	char c;
	long x;
};

kernel void echo(global double *out, int a, long b, uint c, ulong d, float e, double f, struct pair p) {
	if (number() != 0)
		return;
	out[0] = a;
	out[1] = b;
	out[2] = c;
	out[3] = d;
	out[4] = e;
	out[5] = f;
	out[6] = p.c;
	out[7] = p.x;
}

// The last parameter is the dynamic shared memory of a block.
kernel void blocks(global int *out, int n, local char *shared) {
	int group = get_group_id(0) + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
	int count = get_local_size(0) * get_local_size(1) * get_local_size(2);
	int item = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));
	for (int i = item; i < n; i += count)
		shared[i] = 1;
	barrier(CLK_LOCAL_MEM_FENCE);
	if (item != 0)
		return;
	int sum = count;
	for (int i = 0; i < n; i++)
		sum += shared[i];
	out[group] = sum;
}
