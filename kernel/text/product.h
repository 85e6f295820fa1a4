// Products of which one matrix has elements of images: see product.
#ifdef BIAS
#define RESULT(at) \
	ADD_TO(v, IN2(i2[(group * g.rows + row) * g.bias])); \
	o0[at] = OUT0(v);
#else
#define RESULT(at) o0[at] = OUT0(v);
#endif
// clang-format off
#define INSIDE(k) && (U)x##k < (U)g.limits[k]
#define IN_A(k) + t##k * g.a_steps[k]
#define IN_B(k) + x##k * g.b_steps[k]
// clang-format on

// The digits of a depth number: q of deep, and t0, t1 and t2 of space, of which the last is what's left.
#define DIGIT(k) I t##k = 0;
#define STEP_DIGIT(k) I step_t##k = 0;
#define SPLIT_DEPTH(k) SPLIT(t##k, g.depth[k])
#define SPLIT_STEP(k) SPLIT(step_t##k, g.depth[k])
#if DIMS == 0
#undef DEEP_INSIDE
#endif
#ifdef DEEP_INSIDE
#define DEPTH_DIGITS \
	SPLIT(q, g.deep) \
	EACH_DIM_BACK_BUT_0(SPLIT_DEPTH) \
	t0 = rest;
#define STEP_DIGITS \
	SPLIT(step_q, g.deep) \
	EACH_DIM_BACK_BUT_0(SPLIT_STEP) \
	step_t0 = rest;
#else
#define DEPTH_DIGITS \
	EACH_DIM_BACK(SPLIT_DEPTH) \
	q = rest;
#define STEP_DIGITS \
	EACH_DIM_BACK(SPLIT_STEP) \
	step_q = rest;
#endif

#if defined(PRODUCT_TILES)
#include "product_tiles.h"
#elif !defined(PRODUCT_LANES)
#include "product_elements.h"
#endif
