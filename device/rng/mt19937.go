package rng

// mt19937 is the Mersenne Twister of Matsumoto and Nishimura (1998) with the seeding of 2002, its fields named and
// counted as in PyTorch's MT19937RNGEngine.h, because they are what a saved state holds.
type mt19937 struct {
	seed  uint64
	left  int32 // 1 + the words that are left in state
	next  uint32
	state [mtWords]uint32
}

const (
	mtWords  = 624
	mtMiddle = 397
)

func (m *mt19937) init(seed uint64) {
	m.seed, m.left, m.next = seed, 1, 0
	m.state[0] = uint32(seed)
	for i := uint32(1); i < mtWords; i++ {
		m.state[i] = 1812433253*(m.state[i-1]^m.state[i-1]>>30) + i
	}
}

// words returns the words that are left, at least one, untempered. The caller takes the first n with m.take(n).
func (m *mt19937) words() []uint32 {
	if m.left <= 1 {
		m.twist()
		m.left, m.next = mtWords+1, 0
	}
	return m.state[m.next:min(m.next+uint32(m.left)-1, mtWords)]
}

func (m *mt19937) take(n int) {
	m.left -= int32(n)
	m.next += uint32(n)
}

// twist replaces the state by the next 624 words.
func (m *mt19937) twist() {
	s := &m.state
	for i := range mtWords - mtMiddle {
		s[i] = s[i+mtMiddle] ^ twistWord(s[i], s[i+1])
	}
	for i := mtWords - mtMiddle; i < mtWords-1; i++ {
		s[i] = s[i+mtMiddle-mtWords] ^ twistWord(s[i], s[i+1])
	}
	s[mtWords-1] = s[mtMiddle-1] ^ twistWord(s[mtWords-1], s[0])
}

func twistWord(u, v uint32) uint32 {
	return (u&0x80000000|v&0x7fffffff)>>1 ^ -(v&1)&0x9908b0df
}

func temper(y uint32) uint32 {
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

func (m *mt19937) uint32() uint32 {
	if m.left <= 1 {
		m.words()
	}
	y := m.state[m.next]
	m.left--
	m.next++
	return temper(y)
}

// uint64 puts the first word on top.
func (m *mt19937) uint64() uint64 {
	hi := uint64(m.uint32())
	return hi<<32 | uint64(m.uint32())
}

// uniform53 is uniform in [0, 1) with 53 bits.
func (m *mt19937) uniform53() float64 { return float64(m.uint64()&(1<<53-1)) * 0x1p-53 }

// uniform24 is uniform in [0, 1) with 24 bits.
func (m *mt19937) uniform24() float32 { return float32(m.uint32()&(1<<24-1)) * 0x1p-24 }

// fill24 fills dst with uniform24.
func (m *mt19937) fill24(dst []float32) {
	for len(dst) > 0 {
		w := m.words()
		n := min(len(w), len(dst))
		for i, y := range w[:n] {
			dst[i] = float32(temper(y)&(1<<24-1)) * 0x1p-24
		}
		m.take(n)
		dst = dst[n:]
	}
}

// skip draws n words and drops them.
func (m *mt19937) skip(n uint64) {
	for n > 0 {
		k := min(uint64(len(m.words())), n)
		m.take(int(k))
		n -= k
	}
}
