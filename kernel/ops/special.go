package ops

import (
	"strings"

	"github.com/chorus-comms/chorus/kernel/text"
)

// specialFiles are the texts of functions of a real floating-point type T that few operations need. A kernel has the
// text of its own operation only, since compilers take their time for it.
var specialFiles = map[string]string{}

// specialOps are those operations.
var specialOps = []Op{
	special("airy", "airy_ai", 1, 0, "t_airy_ai(a)"),
	special("bessel0", "bessel_j0", 1, 0, "t_bessel_j0(a)"),
	special("bessel1", "bessel_j1", 1, 0, "t_bessel_j1(a)"),
	special("bessel0", "bessel_y0", 1, 0, "t_bessel_y0(a)"),
	special("bessel1", "bessel_y1", 1, 0, "t_bessel_y1(a)"),
	special("modified", "modified_bessel_k0", 1, 0, "t_bessel_k0(a, 0)"),
	special("modified", "modified_bessel_k1", 1, 0, "t_bessel_k1(a, 0)"),
	special("modified", "scaled_modified_bessel_k0", 1, 0, "t_bessel_k0(a, 1)"),
	special("modified", "scaled_modified_bessel_k1", 1, 0, "t_bessel_k1(a, 1)"),
	special("", "spherical_bessel_j0", 1, 0, "isinf(a) ? (T)0 : fabs(a) < (T)0.5 ? "+sincSeries+" : sin(a) / a"),
	special("polynomials", "chebyshev_polynomial_t", 2, 0, "t_chebyshev(a, b, 0)"),
	special("polynomials", "chebyshev_polynomial_u", 2, 0, "t_chebyshev(a, b, 1)"),
	special("polynomials", "chebyshev_polynomial_v", 2, 0, "t_chebyshev(a, b, 2)"),
	special("polynomials", "chebyshev_polynomial_w", 2, 0, "t_chebyshev(a, b, 3)"),
	special("polynomials", "shifted_chebyshev_polynomial_t", 2, 0, "t_chebyshev(a + a - 1, b, 0)"),
	special("polynomials", "shifted_chebyshev_polynomial_u", 2, 0, "t_chebyshev(a + a - 1, b, 1)"),
	special("polynomials", "shifted_chebyshev_polynomial_v", 2, 0, "t_chebyshev(a + a - 1, b, 2)"),
	special("polynomials", "shifted_chebyshev_polynomial_w", 2, 0, "t_chebyshev(a + a - 1, b, 3)"),
	special("polynomials", "hermite_polynomial_h", 2, 0, "t_hermite(a, b, 2)"),
	special("polynomials", "hermite_polynomial_he", 2, 0, "t_hermite(a, b, 1)"),
	special("polynomials", "laguerre_polynomial_l", 2, 0, "t_laguerre(a, b)"),
	special("polynomials", "legendre_polynomial_p", 2, 0, "t_legendre(a, b)"),
	special("zeta", "zeta", 2, 0, "t_zeta(a, b)"),
	special("zeta", "polygamma", 1, 1, "t_polygamma(s0, a)"), // of order 2 and more
	special("erfcx", "erfcx", 1, 0, "t_erfcx(a)"),
	special("erfcx", "log_ndtr", 1, 0, "t_log_ndtr(a)"),
	special("ndtri", "ndtri", 1, 0, "t_ndtri(a)"),
	special("igamma", "igamma", 2, 0, "t_igamma(a, b, 0)"),
	special("igamma", "igammac", 2, 0, "t_igamma(a, b, 1)"),
	special("frexp", "frexp", 1, 0, "t_fraction(a); t_power(a)"),
}

// sincSeries is that of sin(a) / a near 0.
const sincSeries = "1 - a * a / 6 * (1 - a * a / 20 * (1 - a * a / 42 * (1 - a * a / 72 * (1 - a * a / 110 * (1 - a * a / 156)))))"

// special is an operation whose function is in a file of specialFiles.
func special(file, name string, ins, numbers int, real string) Op {
	specialFiles[name] = file
	return float(name, ins, numbers, real, "")
}

// Functions writes the functions of an operation, if it has its own.
func Functions(w *text.Writer, op string) {
	if file := specialFiles[op]; file != "" {
		w.Dialect("special/tables")
		w.Dialect("special/" + file)
	}
	if strings.Contains(op, "_f8") {
		w.Dialect("float8")
	}
}

// IsSpecial reports whether an operation has a text of its own.
func IsSpecial(op string) bool { return specialFiles[op] != "" }

// float8Ops convert to and from numbers of 8 bits, whose bits are uint8 in memory.
var float8Ops = func() (all []Op) {
	for _, name := range []string{"e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"} {
		all = append(all, only("to_f8"+name, 1, 0, "(T)to_f8"+name+"((f32)a)"),
			only("from_f8"+name, 1, 0, "(T)from_f8"+name+"((u8)a)"))
	}
	return all
}()
