package rng

// philox is Philox 4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011): a
// bijection of the 128-bit counter, chosen by the 64-bit key.
func philox(counter [4]uint32, key uint64) [4]uint32 {
	c0, c1, c2, c3 := counter[0], counter[1], counter[2], counter[3]
	k0, k1 := uint32(key), uint32(key>>32)
	for range 10 {
		p0 := uint64(c0) * 0xd2511f53
		p1 := uint64(c2) * 0xcd9e8d57
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		k0 += 0x9e3779b9
		k1 += 0xbb67ae85
	}
	return [4]uint32{c0, c1, c2, c3}
}

// philoxAt returns the block that cuRAND draws from the given subsequence after the given number of blocks. The count
// carries over into the subsequence, as cuRAND's does.
func philoxAt(key, subsequence, block, more uint64) [4]uint32 {
	n := block + more
	if n < block {
		subsequence++
	}
	return philox([4]uint32{uint32(n), uint32(n >> 32), uint32(subsequence), uint32(subsequence >> 32)}, key)
}
