// The gradient of a score, that of its weight less the row's sum times the weight, from x[j] and dy[j]; e is the
// weight.
T e = y == -(T)INFINITY ? 0 : exp(y - IN5(i5[lse + row * l.s[7][2]]));
#ifdef DROPOUT
T slope = y == -(T)INFINITY ? 0 : e * ((kept ? dy[j] * inverse : (T)0) - DELTA) * scale;
#else
T slope = y == -(T)INFINITY ? 0 : e * (dy[j] - DELTA) * scale;
#endif
