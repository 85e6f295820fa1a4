// Of the DIMS dimensions of images M is written for each, with the number.
#if DIMS == 0
#define EACH_DIM(M)
#define EACH_DIM_BACK(M)
#define EACH_DIM_BACK_BUT_0(M)
#define EACH_DIM_BUT_0(M)
#elif DIMS == 1
#define EACH_DIM(M) M(0)
#define EACH_DIM_BACK(M) M(0)
#define EACH_DIM_BACK_BUT_0(M)
#define EACH_DIM_BUT_0(M)
#elif DIMS == 2
#define EACH_DIM(M) M(0) M(1)
#define EACH_DIM_BACK(M) M(1) M(0)
#define EACH_DIM_BACK_BUT_0(M) M(1)
#define EACH_DIM_BUT_0(M) M(1)
#else
#define EACH_DIM(M) M(0) M(1) M(2)
#define EACH_DIM_BACK(M) M(2) M(1) M(0)
#define EACH_DIM_BACK_BUT_0(M) M(2) M(1)
#define EACH_DIM_BUT_0(M) M(1) M(2)
#endif
// Takes the last of several digits from the number rest.
#define SPLIT(digit, size) \
	up = sizeof(I) == 8 ? rest / size : (I)((u32)rest / (u32)size); \
	digit = rest - up * size; \
	rest = up;
#define CLOSE(k) }
