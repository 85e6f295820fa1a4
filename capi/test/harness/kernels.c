// Kernels: on the first device of OpenCL that compiles one, and refused elsewhere.
#include "harness.h"

static chorus_stream stream;

static int32_t found(int32_t kind, const char *name) {
	int32_t op = 0;
	OK(chorus_kernel_find(kind, name, &op));
	EXPECT(op > 0);
	return op;
}

// A dense operand of the device.
static chorus_operand dense(void *p, const int64_t *sizes, const int64_t *strides, int32_t dims) {
	return (chorus_operand){.memory = p, .sizes = sizes, .strides = strides, .dims = dims, .dtype = CHORUS_FLOAT32};
}

static const int64_t sizes[] = {3, 4}, strides[] = {4, 1}, ones[] = {1, 1}, zeros[] = {0, 0};

static void refuses(void) {
	int32_t op = 0;
	GETS(CHORUS_UNSUPPORTED, chorus_kernel_find(CHORUS_KERNEL_ELEMENTWISE, "nonesuch", &op));
	GETS(CHORUS_UNSUPPORTED, chorus_kernel_find(99, "add", &op));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_kernel_find(CHORUS_KERNEL_ELEMENTWISE, NULL, &op));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_kernel_find(CHORUS_KERNEL_ELEMENTWISE, "template <typename T> T f(", &op));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_kernel_find(CHORUS_KERNEL_ELEMENTWISE, "// template", &op)); // no function
	EXPECT(found(CHORUS_KERNEL_ELEMENTWISE, "add") != found(CHORUS_KERNEL_ELEMENTWISE, "mul"));
	chorus_device other;
	chorus_stream s;
	chorus_kernel_info info = {.size = sizeof info};
	chorus_kernel k = {.size = sizeof k, .kind = CHORUS_KERNEL_ELEMENTWISE, .op = found(CHORUS_KERNEL_ELEMENTWISE, "add")};
	OK(chorus_device_open("accinte:0", &other));
	OK(chorus_stream_default(other, &s));
	GETS(CHORUS_UNSUPPORTED, chorus_kernel_get(other, &info));
	GETS(CHORUS_UNSUPPORTED, chorus_kernel_run(s, &k));
	chorus_fft t = {.size = sizeof t};
	chorus_fft_info plans = {.size = sizeof plans};
	GETS(CHORUS_UNSUPPORTED, chorus_fft_run(s, &t));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_fft_run(s, NULL));
	t.dims = 9;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_fft_run(s, &t));
	GETS(CHORUS_UNSUPPORTED, chorus_fft_get(other, &plans));
	GETS(CHORUS_UNSUPPORTED, chorus_fft_plans(other, 1));
	chorus_solve step = {.size = sizeof step};
	GETS(CHORUS_UNSUPPORTED, chorus_solve_run(s, &step));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_solve_run(s, NULL));
	GETS(CHORUS_UNSUPPORTED, chorus_solve_get(other, 0));
	GETS(CHORUS_UNSUPPORTED, chorus_solve_get(other, 1));
	void *handle = NULL;
	GETS(CHORUS_UNSUPPORTED, chorus_blas_handle(s, &handle));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_blas_handle(s, NULL));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_kernel_run(s + 1, &k));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_kernel_run(s, NULL));
}

void kernels(void) {
	refuses();
	chorus_device d;
	if (chorus_device_open("opencl:0", &d) != CHORUS_OK) {
		printf("left out: %s\n", chorus_last_error()->message);
		return;
	}
	OK(chorus_stream_default(d, &stream));
	float x[12], got[12];
	for (int i = 0; i < 12; i++)
		x[i] = (float)i;
	void *in, *out, *view;
	OK(chorus_cache_alloc(d, sizeof x, stream, &in, &view));
	OK(chorus_cache_alloc(d, sizeof x, stream, &out, &view));
	OK(chorus_stream_copy(stream, in, x, sizeof x));
	OK(chorus_stream_await(stream, 0));
	chorus_number two = {.integer = 2, .is_integer = 1}, half = {.real = 0.5};
	chorus_operand outs[] = {dense(out, sizes, strides, 2)};
	chorus_operand ins[] = {dense(in, sizes, strides, 2), {.dtype = CHORUS_FLOAT32, .number = &half}};
	chorus_kernel add = {.size = sizeof add, .kind = CHORUS_KERNEL_ELEMENTWISE, .op = found(CHORUS_KERNEL_ELEMENTWISE, "add"),
		.compute = CHORUS_FLOAT32, .outs = outs, .n_outs = 1, .ins = ins, .n_ins = 2, .numbers = &two, .n_numbers = 1};
	if (chorus_kernel_run(stream, &add) == CHORUS_UNSUPPORTED) {
		printf("left out: %s\n", chorus_last_error()->message);
		return;
	}
	OK(chorus_stream_copy(stream, got, out, sizeof got));
	OK(chorus_stream_await(stream, 0));
	for (int i = 0; i < 12; i++)
		if (got[i] != x[i] + 1)
			DIE("element %d is %g", i, (double)got[i]);
	chorus_operand total[] = {dense(out, ones, zeros, 2)};
	chorus_kernel sum = {.size = sizeof sum, .kind = CHORUS_KERNEL_REDUCE, .op = found(CHORUS_KERNEL_REDUCE, "sum"),
		.compute = CHORUS_FLOAT32, .outs = total, .n_outs = 1, .ins = ins, .n_ins = 1};
	OK(chorus_kernel_run(stream, &sum));
	OK(chorus_stream_copy(stream, got, out, sizeof *got));
	OK(chorus_stream_await(stream, 0));
	EXPECT(got[0] == 66);
	// What can't be.
	chorus_kernel wrong = add;
	wrong.n_ins = 1;
	GETS(CHORUS_UNSUPPORTED, chorus_kernel_run(stream, &wrong));
	wrong = add;
	wrong.op = 9999;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_kernel_run(stream, &wrong));
	wrong = add;
	wrong.n_ins = 99;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_kernel_run(stream, &wrong));
	wrong = add;
	wrong.compute = CHORUS_FLOAT16;
	GETS(CHORUS_UNSUPPORTED, chorus_kernel_run(stream, &wrong));
	wrong = sum;
	wrong.kind = CHORUS_KERNEL_SCAN;
	wrong.op = found(CHORUS_KERNEL_SCAN, "cumsum");
	GETS(CHORUS_INVALID_ARGUMENT, chorus_kernel_run(stream, &wrong)); // no dimension
	// A user's text.
	const char *text = "template <typename T> T twice(T x, T y, T a) { return 2 * x + y - a; }";
	chorus_kernel own = add;
	own.op = found(CHORUS_KERNEL_ELEMENTWISE, text);
	EXPECT(own.op == found(CHORUS_KERNEL_ELEMENTWISE, text));
	OK(chorus_kernel_run(stream, &own));
	OK(chorus_stream_copy(stream, got, out, sizeof got));
	OK(chorus_stream_await(stream, 0));
	for (int i = 0; i < 12; i++)
		EXPECT(got[i] == 2 * x[i] - 1.5f);
	// A whole text.
	int32_t source = 0, again = 0;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_source_add("void f(void) {}", &source));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_source_add(NULL, &source));
	const char *whole = "KERNEL void halves(GLOBAL f32 *out, GLOBAL const f32 *in, i64 n) {\n"
		"	for (i64 i = BLOCK * THREADS_OF_BLOCK + THREAD; i < n; i += BLOCKS * THREADS_OF_BLOCK)\n"
		"		out[i] = f32_floor(in[i] / 2);\n"
		"}\n";
	OK(chorus_source_add(whole, &source));
	OK(chorus_source_add(whole, &again));
	EXPECT(source == again);
	void *pointers[] = {out, in};
	int64_t n = 12;
	chorus_source run = {.size = sizeof run, .source = source, .units = n, .pointers = pointers, .n_pointers = 2,
		.integers = &n, .n_integers = 1};
	OK(chorus_source_run(stream, &run));
	OK(chorus_stream_copy(stream, got, out, sizeof got));
	OK(chorus_stream_await(stream, 0));
	for (int i = 0; i < 12; i++)
		EXPECT(got[i] == (float)(i / 2));
	run.units = 0;
	OK(chorus_source_run(stream, &run));
	run.units = -1;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_source_run(stream, &run));
	run.source = 9999;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_source_run(stream, &run));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_source_run(stream, NULL));
	OK(chorus_source_add("KERNEL void f(GLOBAL f32 *p) { p[0] = nonesuch; }", &run.source));
	run.units = run.n_pointers = 1;
	run.n_integers = 0;
	GETS(CHORUS_UNSUPPORTED, chorus_source_run(stream, &run));
	own.op++;
	GETS(CHORUS_INVALID_ARGUMENT, chorus_kernel_run(stream, &own));
	chorus_kernel_info info = {.size = sizeof info};
	OK(chorus_kernel_get(d, &info));
	EXPECT(info.multiplied == 0 && !info.varies);
	const char *tuned = NULL;
	OK(chorus_tune_set(1, 0, 30, 100));
	OK(chorus_tune_add("GemmTunableOp_float_NN,nn_1_1_1_ld_1_1_1,Default,0.5"));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_tune_add("GemmTunableOp_float_NN"));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_tune_set(1, 1, -1, 0));
	OK(chorus_tune_results(&tuned));
	EXPECT(!strcmp(tuned, "GemmTunableOp_float_NN,nn_1_1_1_ld_1_1_1,Default,0.5"));
	OK(chorus_tune_set(0, 0, 0, 0));
	chorus_fft_info plans = {.size = sizeof plans};
	OK(chorus_fft_plans(d, 7));
	OK(chorus_fft_get(d, &plans));
	EXPECT(plans.plans == 0 && plans.most_plans == 7);
	OK(chorus_fft_plans(d, -1));
	GETS(CHORUS_INVALID_ARGUMENT, chorus_fft_plans(d, -2));
	EXPECT(info.launched == 3 + 1 && info.compiled + info.from_disk == 3 + 1 && info.refused == 1 && !info.off);
	OK(chorus_cache_free(d, in));
	OK(chorus_cache_free(d, out));
}
