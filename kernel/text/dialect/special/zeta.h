// Hurwitz' zeta function by the Euler-Maclaurin formula (DLMF 25.11.28): terms up to 9, and of the rest an integral
// with twelve corrections, whose divisors (2k)!/B(2k) are those of Moshier's Cephes library (zeta.c).
TABLE zeta_a[] = {
	(T)12.0, (T)-720.0, (T)30240.0, (T)-1209600.0, (T)47900160.0, (T)-1.8924375803183791606e9, (T)7.47242496e10,
	(T)-2.950130727918164224e12, (T)1.1646782814350067249e14, (T)-4.5979787224074726105e15,
	(T)1.8152105401943546773e17, (T)-7.1661652561756670113e18};
DEVICE T t_zeta(T x, T q) {
	T s, a = q, b = 0, r;
	if (x == 1)
		return (T)INFINITY;
	if (x < 1)
		return (T)NAN;
	if (q <= 0) {
		if (q == floor(q))
			return (T)INFINITY;
		if (x != floor(x))
			return (T)NAN;
	}
	s = pow(q, -x);
	for (int k = 0; k < 9 || a <= 9; k++) {
		a += 1;
		b = pow(a, -x);
		s += b;
		if (fabs(b) < T_EPSILON / 2 * fabs(s))
			return s;
	}
	s += b * a / (x - 1) - b / 2;
	r = b * x / a;
	for (int k = 0; k < 12; k++) {
		T t = r / zeta_a[k];
		s += t;
		if (fabs(t / s) < T_EPSILON / 2)
			break;
		r *= (x + (T)(2 * k + 1)) / a * ((x + (T)(2 * k + 2)) / a);
	}
	return s;
}
DEVICE T t_polygamma(T n, T x) {
	T y = exp(lgamma(n + 1)) * t_zeta(n + 1, x);
	return fmod(n, (T)2) == 0 ? -y : y;
}
