typedef SCALE S;
typedef struct {
	I in, out, stride, padding, window;
	S scale;
} axis;
DEVICE S s_min(S a, S b) { return a < b ? a : b; }
DEVICE S s_max(S a, S b) { return a > b ? a : b; }
