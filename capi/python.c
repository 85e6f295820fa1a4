// Collectives of PyTorch's tensors with one call from Python: what Python does itself for chorus_submit, asking a tensor for
// its address, size and type and packing a chorus_op, takes three times as long as a small operation.
//
// Nothing here is compiled against Python or PyTorch. Python's functions come by chorus_set_python, and what a tensor
// is by DLPack's exchange API (https://dmlc.github.io/dlpack, version 1.3), which PyTorch has from 2.10 on.

#include <stddef.h>

#include "shim.h"

#define EXPORT __attribute__((visibility("default")))

static chorus_python python;

// DLTensor, and the codes of its dtype.
struct view {
	void *data;
	int32_t device, device_id;
	int32_t ndim;
	uint8_t code, bits;
	uint16_t lanes;
	const int64_t *shape, *strides;
	uint64_t byte_offset;
};
enum { CPU = 1 };
enum { INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6, FLOAT8_E4M3FN = 10, FLOAT8_E5M2 = 12 };

// dtype_of returns the dtype of a view's elements, 0 if they are none of ours. Complex numbers count as such, because
// a view doesn't tell whether it stands for the conjugates of what is in memory.
static int32_t dtype_of(const struct view *v) {
	if (v->lanes != 1)
		return 0;
	switch (v->code << 8 | v->bits) {
	case BOOL << 8 | 8: return CHORUS_BOOL;
	case UINT << 8 | 8: return CHORUS_UINT8;
	case UINT << 8 | 16: return CHORUS_UINT16;
	case UINT << 8 | 32: return CHORUS_UINT32;
	case UINT << 8 | 64: return CHORUS_UINT64;
	case INT << 8 | 8: return CHORUS_INT8;
	case INT << 8 | 16: return CHORUS_INT16;
	case INT << 8 | 32: return CHORUS_INT32;
	case INT << 8 | 64: return CHORUS_INT64;
	case FLOAT << 8 | 16: return CHORUS_FLOAT16;
	case FLOAT << 8 | 32: return CHORUS_FLOAT32;
	case FLOAT << 8 | 64: return CHORUS_FLOAT64;
	case BFLOAT << 8 | 16: return CHORUS_BFLOAT16;
	case FLOAT8_E4M3FN << 8 | 8: return CHORUS_FLOAT8_E4M3FN;
	case FLOAT8_E5M2 << 8 | 8: return CHORUS_FLOAT8_E5M2;
	}
	return 0;
}

// look finds a tensor's elements; 0 if it's not in the host's memory, one element after the other, of a type of ours.
static int look(void *tensor, void **data, int64_t *count, int32_t *dtype) {
	struct view v;
	if (python.view(tensor, &v)) {
		python.forget();
		return 0;
	}
	if (v.device != CPU || !(*dtype = dtype_of(&v)))
		return 0;
	int64_t n = 1;
	int dense = 1;
	for (int32_t i = v.ndim - 1; i >= 0; i--) {
		if (v.strides && v.shape[i] != 1 && v.strides[i] != n)
			dense = 0;
		n *= v.shape[i];
	}
	*data = (char *)v.data + v.byte_offset;
	*count = n;
	return dense || !n;
}

EXPORT chorus_status chorus_set_python(const chorus_python *p) {
	if (!p || p->size < sizeof *p || !p->view || !p->as_integer || !p->integer || !p->failed || !p->forget)
		return CHORUS_INVALID_ARGUMENT;
	python = *p;
	return CHORUS_OK;
}

EXPORT void *chorus_python_submit(void *self, void *const *args, intptr_t n) {
	if (n < 4 || n > 6)
		return python.integer(CHORUS_PYTHON_OTHERWISE);
	chorus_comm comm = (chorus_comm)python.as_integer(self);
	int32_t dtype;
	chorus_op op = {.size = sizeof op, .kind = (int32_t)python.as_integer(args[0]), .reduction = (int32_t)python.as_integer(args[1]),
		.root = (int32_t)python.as_integer(args[2]), .timeout_ns = python.as_integer(args[3])};
	if (python.failed())
		return NULL;
	if (n > 4) {
		if (!look(args[4], &op.out, &op.out_count, &op.dtype))
			return python.integer(CHORUS_PYTHON_OTHERWISE);
		op.in = op.out;
		op.in_count = op.out_count;
	}
	if (n > 5 && (!look(args[5], (void **)&op.in, &op.in_count, &dtype) || dtype != op.dtype))
		return python.integer(CHORUS_PYTHON_OTHERWISE);
	chorus_status status = chorus_submit(comm, &op, NULL);
	return python.failed() ? NULL : python.integer(status); // a signal handler's exception
}
