// The functions that the suite launches, in the C that CUDA and HIP share.

// number is the thread's among all of the grid, and threads how many there are.
static __device__ int number() {
	int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
	int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	return thread + block * (blockDim.x * blockDim.y * blockDim.z);
}

static __device__ int threads() {
	return blockDim.x * blockDim.y * blockDim.z * gridDim.x * gridDim.y * gridDim.z;
}

// out[i] = a[i] + b[i] for all i below n, whatever the grid.
extern "C" __global__ void add(int *out, const int *a, const int *b, int n) {
	for (int i = number(); i < n; i += threads())
		out[i] = a[i] + b[i];
}

// out[i] += 1 for all i below n, whatever the grid.
extern "C" __global__ void accumulate(int *out, int n) {
	for (int i = number(); i < n; i += threads())
		out[i] += 1;
}

struct pair {
	signed char c;
	long long x;
};

// out[0..7] = the arguments, and the struct's two.
extern "C" __global__ void echo(double *out, int a, long long b, unsigned c, unsigned long long d, float e, double f,
                                struct pair p) {
	if (number() != 0)
		return;
	out[0] = a;
	out[1] = (double)b;
	out[2] = c;
	out[3] = (double)d;
	out[4] = e;
	out[5] = f;
	out[6] = p.c;
	out[7] = (double)p.x;
}

// out[the block's number in the grid] = threads of the block + n, which it counts in n bytes of dynamic shared memory.
// The number of block (x, y, z) is x + X*(y + Y*z).
extern "C" __global__ void blocks(int *out, int n) {
	extern __shared__ signed char shared[];
	int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
	int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	int count = blockDim.x * blockDim.y * blockDim.z;
	for (int i = thread; i < n; i += count)
		shared[i] = 1;
	__syncthreads();
	if (thread != 0)
		return;
	int sum = count;
	for (int i = 0; i < n; i++)
		sum += shared[i];
	out[block] = sum;
}
