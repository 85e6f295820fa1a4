// The sum becomes the element of the result at row and column.
#define ADDEND PLUS(i2[at3 + row * cm + column * cn])
#if defined(SCALED)
T a = SUM * i3[row * as] * i4[column * bs];
#ifdef PLUS
a += ADDEND;
#endif
#ifdef RESULT_SCALE
a *= 1 / i5[0];
#endif
#elif defined(COMPLEX)
T a = c_mul(COMPUTED(alpha), SUM);
#ifdef PLUS
a = c_add(a, c_mul(COMPUTED(beta), ADDEND));
#endif
#else
T a = (T)(COMPUTED(alpha) * SUM);
#ifdef PLUS
a = (T)(a + COMPUTED(beta) * ADDEND);
#endif
#endif
#ifdef ACTIVATION
a = ACTIVATION;
#endif
o0[at0 + row * om + column * on] = RESULT(a);
