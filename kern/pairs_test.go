package kern

import (
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// Every number of 16 bits with partners of many exponents, zeros, the least and the greatest numbers, infinities and
// NaN among them; with CHORUS_TEST_LONG=1 every number with every number, which takes some minutes.
func TestReducePairs(t *testing.T) {
	const all = 1 << 16
	for dt, digits := range map[dtype.DType]int{dtype.Float16: 10, dtype.BFloat16: 7} {
		var partners []uint16
		if os.Getenv("CHORUS_TEST_LONG") == "1" {
			for b := range all {
				partners = append(partners, uint16(b))
			}
		} else {
			r := rand.New(rand.NewPCG(3, uint64(dt)))
			last := 1<<(15-digits) - 1 // the exponent of infinities and NaN
			fraction := 1<<digits - 1
			for e := 0; e <= last; e += (last + 1) / 32 {
				for _, exponent := range []int{e, last - e} {
					for _, f := range []int{0, 1, r.IntN(fraction), fraction} {
						b := uint16(exponent<<digits | f)
						partners = append(partners, b, b|1<<15)
					}
				}
			}
		}
		numbers, partner, want, got := newMemory(dt, all, 0), newMemory(dt, all, 1), newMemory(dt, all, 0), newMemory(dt, all,
			2)
		for i := range all {
			numbers.words()[i] = uint16(i)
		}
		for _, b := range partners {
			for i := range all {
				partner.words()[i] = b
			}
			reference(Sum, want, []*memory{numbers, partner})
			for _, level := range Levels() {
				restore := SetLevel(level)
				Reduce(Sum, dt, pointers(got), pointers(numbers, partner), all)
				restore()
				if err := exactly(dt, got.bytes(), want.bytes()); err != nil {
					t.Fatalf("%s: every %v + %#04x: %v", level, dt, b, err)
				}
			}
		}
	}
}

func (m *memory) words() []uint16 { return unsafe.Slice((*uint16)(m.ptr()), m.n) }

// Every number of 8 bits with every number.
func TestReduceQuarterPairs(t *testing.T) {
	const all = 1 << 16
	for _, dt := range []dtype.DType{dtype.Float8E4M3FN, dtype.Float8E5M2} {
		a, b, want, got := newMemory(dt, all, 0), newMemory(dt, all, 1), newMemory(dt, all, 0), newMemory(dt, all, 2)
		for i := range all {
			a.bytes()[i], b.bytes()[i] = byte(i), byte(i>>8)
		}
		for _, op := range []Op{Sum, Product, Min, Max} {
			reference(op, want, []*memory{a, b})
			for _, level := range Levels() {
				restore := SetLevel(level)
				Reduce(op, dt, pointers(got), pointers(a, b), all)
				restore()
				if err := exactly(dt, got.bytes(), want.bytes()); err != nil {
					t.Fatalf("%s: every %v of %v: %v", level, op, dt, err)
				}
			}
		}
	}
}

// Subnormal numbers among others, which one of the instructions of bfloat16 takes for zeros: as a sum, as a product,
// and beside a NaN, which needs another way of rounding.
func TestSubnormalAmongNormal(t *testing.T) {
	const n = 200
	least := dtype.BF16(1)
	for at := range n {
		a, b := newMemory(dtype.BFloat16, n, 0), newMemory(dtype.BFloat16, n, 0)
		for i := range n {
			a.words()[i], b.words()[i] = 0x3f80, 0x3f80 // 1
		}
		a.words()[at], b.words()[at] = uint16(least), 0
		a.words()[(at+77)%n] = 0x7fc0 // NaN
		want, got := newMemory(dtype.BFloat16, n, 0), newMemory(dtype.BFloat16, n, 0)
		for _, op := range []Op{Sum, Product, Max} {
			if op == Product {
				b.words()[at] = 0x3f80
			}
			reference(op, want, []*memory{a, b})
			for _, level := range Levels() {
				restore := SetLevel(level)
				Reduce(op, dtype.BFloat16, pointers(got), pointers(a, b), n)
				restore()
				if err := exactly(dtype.BFloat16, got.bytes(), want.bytes()); err != nil {
					t.Fatalf("%s: %v with a subnormal number at %d: %v", level, op, at, err)
				}
			}
		}
	}
}
