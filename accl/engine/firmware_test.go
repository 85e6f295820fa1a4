package engine

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/chorus-comms/chorus/accl/abi"
)

// reference says what the engine of a rank sends in a call, as the sources of ACCL's engine have it: this file knows
// nothing of the package that it tests. Lines named "fw" are those of ACCL's ccl_offload_control.c, at commit 723d8ec
// of github.com/Xilinx/ACCL; "mover" is dma_mover.cpp there, "rdma" rdma_sq_handler.cpp. That firmware itself has sent
// the same in all calls of TestMessages, but for the faults in docs/accl.md: it was compiled, with a stand-in for its
// data mover.
type reference struct {
	ranks, me, root, count int
	tag                    uint32
	buffer, maxSegment     int // bytes: of an RX buffer, of a message to each rank
	eager                  int // bytes
	rdma, compressed       bool
	put                    bool // a send is to a stream
	bcastRanks             int  // registers
	reduceRanks, reduceTo  int
	outbound               []uint32 // next numbers of messages to each rank; mover 635
	sent                   []message
}

// message is one that an engine sends.
type message struct {
	src, dst int
	kind     abi.MsgType
	tag, seq uint32
	size     int     // bytes; elements of an offer
	at       int     // bytes behind the address of the offer that a write answers
	stream   uint32  // 0: to memory
	content  content // of a payload
}

// content is consecutive elements of the ranks' first operands: of one's, or combined.
type content struct {
	first, n int
	ranks    uint // bits
}

func (m message) String() string {
	s := fmt.Sprintf("%d>%d", m.src, m.dst)
	tag := "any"
	if m.tag != abi.TagAny {
		tag = fmt.Sprint(m.tag)
	}
	switch m.kind {
	case abi.Eager:
		if m.stream != 0 {
			s += fmt.Sprintf(" stream %d,", m.stream)
		}
		return fmt.Sprintf("%s eager, tag %s, number %d, %d bytes: %v", s, tag, m.seq, m.size, m.content)
	case abi.RendezvousData:
		return fmt.Sprintf("%s write, at %d of the offer, %d bytes: %v", s, m.at, m.size, m.content)
	case abi.RendezvousDone:
		return fmt.Sprintf("%s done, tag %s, number %d, at %d, %d bytes", s, tag, m.seq, m.at, m.size)
	}
	return fmt.Sprintf("%s offer, tag %s, %d elements", s, tag, m.size)
}

func (c content) String() string {
	elements := fmt.Sprintf("%d..%d", c.first, c.first+c.n-1)
	if c.ranks == 0 {
		return elements
	}
	var of []string
	for r := range uint(bits.UintSize) {
		if c.ranks&(1<<r) != 0 {
			of = append(of, fmt.Sprint(r))
		}
	}
	return elements + " of " + strings.Join(of, "+")
}

const elementBytes = 4 // uncompressed, which is what the firmware counts in: fw 586, 807, 1008, 1141, 1313, 1518, 1873

// byRendezvous: fw 587, 667, 808, 1009, 1142, 1314, 1523, 1768, 1878.
func (f *reference) byRendezvous(elements int) bool {
	return f.rdma && !f.compressed && !f.put && elements*elementBytes > f.eager
}

func (f *reference) next() int         { return (f.me + 1) % f.ranks }
func (f *reference) behind(n int) uint { return uint(1) << ((f.me - n + 2*f.ranks) % f.ranks) }

// chain is this rank and so many before it.
func (f *reference) chain(before int) (ranks uint) {
	for i := range before + 1 {
		ranks |= f.behind(i)
	}
	return ranks
}

// move is an instruction with a remote result. A count of 0 sends nothing (mover 466). The bytes on the wire, those of
// compressed elements if the result is (mover 637), go in messages of the rank's segment size, but for the last one
// (mover 299 to 322). Each takes a number (mover 652 to 657). Those to a stream have numbers, but take none (mover 651),
// and a word that says which stream (mover 312).
func (f *reference) move(dst, first, n int, ranks uint) {
	wire := elementBytes
	if f.compressed {
		wire = 2
	}
	number := f.outbound[dst]
	for ; n > 0; number++ {
		part := min(n, f.maxSegment/wire)
		m := message{src: f.me, dst: dst, kind: abi.Eager, tag: f.tag, seq: number, size: part * wire,
			content: content{first, part, ranks}}
		if f.put {
			m.stream = f.tag + 9
		}
		f.sent = append(f.sent, m)
		first, n = first+part, n-part
	}
	if !f.put {
		f.outbound[dst] = number
	}
}

// offer: fw 142; the header's number is 0 (rdma 84).
func (f *reference) offer(dst, n int) {
	f.sent = append(f.sent, message{src: f.me, dst: dst, kind: abi.RendezvousAddress, tag: f.tag, size: n})
}

// write is a move to an address: one write of all (mover 638), then the notice, which has the instruction's bytes and
// the number of the next message (rdma 99 to 126, mover 651).
func (f *reference) write(dst, first, n int, ranks uint) { f.writeAt(dst, 0, first, n, ranks) }

// writeAt is write so many bytes behind the address.
func (f *reference) writeAt(dst, at, first, n int, ranks uint) {
	f.sent = append(f.sent,
		message{src: f.me, dst: dst, kind: abi.RendezvousData, size: n * elementBytes, at: at,
			content: content{first, n, ranks}},
		message{src: f.me, dst: dst, kind: abi.RendezvousDone, tag: f.tag, seq: f.outbound[dst],
			size: n * elementBytes, at: at})
}

// call is fw 2375 to 2415.
func (f *reference) call(s abi.Scenario) {
	if s != abi.Send && s != abi.Recv {
		f.tag = abi.TagAny // of every move of a collective
	}
	switch s {
	case abi.Send: // fw 573
		if f.byRendezvous(f.count) {
			f.write(f.root, 0, f.count, 1<<f.me) // fw 602
		} else {
			f.sendSegments(f.root)
		}
	case abi.Recv: // fw 653
		if f.byRendezvous(f.count) {
			f.offer(f.root, f.count) // fw 672
		}
	case abi.Bcast:
		f.bcast(f.count, 0)
	case abi.Scatter:
		f.scatter(0)
	case abi.Gather:
		f.gather()
	case abi.Allgather:
		f.allgather()
	case abi.Reduce:
		f.reduce(f.count)
	case abi.ReduceScatter:
		f.reduceScatter()
	case abi.Allreduce:
		f.allreduce()
	case abi.Alltoall: // fw 2172 to 2199
		for r := range f.ranks {
			if r != f.me {
				f.offer(r, f.count)
				f.write(r, r*f.count, f.count, 1<<f.me)
			}
		}
	case abi.Barrier: // fw 2100 to 2115: rank 0 hears of all, then all hear of it
		for r := 1; r < f.ranks; r++ {
			if f.me == 0 {
				f.offer(r, 0)
			}
		}
		if f.me != 0 {
			f.offer(0, 0)
		}
	}
}

// sendSegments: an instruction for each RX buffer of uncompressed elements (fw 620 to 638).
func (f *reference) sendSegments(dst int) {
	segment := f.buffer / elementBytes
	for at := 0; at < f.count; at += segment {
		f.move(dst, at, min(segment, f.count-at), 1<<f.me)
	}
}

// bcast sends what all of some ranks have combined: none of them if the root has it alone.
func (f *reference) bcast(n int, combined uint) {
	if combined == 0 {
		combined = 1 << f.root
	}
	l := (f.me + f.ranks - f.root) % f.ranks // fw 841
	switch {
	case !f.byRendezvous(n):
		if f.me != f.root {
			return // fw 968
		}
		segment := f.buffer / elementBytes // fw 933
		for at := 0; at < n; at += segment {
			for r := range f.ranks { // fw 945; the root's own is a dry run (fw 952)
				if r != f.root {
					f.move(r, at, min(segment, n-at), combined)
				}
			}
		}
	case f.ranks > f.bcastRanks: // fw 814: a tree, whose distance is halved from 2^floor(log2(ranks-1)) on (fw 837)
		has := l == 0
		for d := 1 << (bits.Len(uint(f.ranks-1)) - 1); d > 0; d /= 2 {
			switch {
			case has && l%(2*d) == 0 && l+d < f.ranks: // fw 844
				f.write((f.me+d)%f.ranks, 0, n, combined)
			case !has && l%d == 0: // fw 857
				f.offer((f.me-d+f.ranks)%f.ranks, n)
				has = true
			}
		}
	case f.me == f.root: // fw 875
		for r := range f.ranks {
			if r != f.me {
				f.write(r, 0, n, combined)
			}
		}
	default:
		f.offer(f.root, n) // fw 915
	}
}

// scatter has no segments of its own (fw 1003).
func (f *reference) scatter(combined uint) {
	if combined == 0 {
		combined = 1 << f.root
	}
	rendezvous := f.byRendezvous(f.count)
	if f.me != f.root {
		if rendezvous {
			f.offer(f.root, f.count) // fw 1075
		}
		return
	}
	for r := range f.ranks { // fw 1033, 1088
		switch {
		case r == f.root:
		case rendezvous:
			f.write(r, r*f.count, f.count, combined)
		default:
			f.move(r, r*f.count, f.count, combined)
		}
	}
}

// gather by rendezvous asks each rank for its block (fw 1160 to 1181, without the slips that ask the root itself, and
// ranks that there aren't), eager it passes the blocks along the ring: each rank its own, then as many as the ranks
// that are farther from the root (fw 1262 to 1287).
func (f *reference) gather() {
	switch {
	case f.byRendezvous(f.count) && f.me == f.root:
		for r := range f.ranks {
			if r != f.root {
				f.offer(r, f.count)
			}
		}
	case f.byRendezvous(f.count):
		f.write(f.root, 0, f.count, 1<<f.me) // fw 1195
	case f.me != f.root:
		for i := range (f.ranks + f.me - f.root) % f.ranks {
			f.move(f.next(), 0, f.count, f.behind(i))
		}
	}
}

// allgather sends this rank's block to the next one, and then each that comes but the last. By rendezvous the address
// of the first block stands for all, and each goes to its place behind that (fw 1336, 1366, 1384); eager it's fw 1435
// to 1497.
func (f *reference) allgather() {
	rendezvous := f.byRendezvous(f.count)
	if rendezvous {
		f.offer((f.me-1+f.ranks)%f.ranks, f.count)
	}
	for i := range f.ranks - 1 {
		if rendezvous {
			block := (f.me - i + f.ranks) % f.ranks
			f.writeAt(f.next(), block*f.count*elementBytes, 0, f.count, f.behind(i))
		} else {
			f.move(f.next(), 0, f.count, f.behind(i))
		}
	}
}

// reduce: eager a chain from the rank behind the root on, which sends segments, while the others pass everything on in
// one instruction (fw 1731 to 1742).
func (f *reference) reduce(n int) {
	l := (f.me + f.ranks - f.root) % f.ranks
	switch {
	case f.ranks == 1: // fw 1520
	case !f.byRendezvous(n):
		if l == 1 {
			f.sendSegments(f.next())
		} else if l > 1 {
			f.move(f.next(), 0, n, f.chain(l-1))
		}
	case f.ranks <= f.reduceRanks || n*elementBytes <= f.reduceTo: // fw 1531: a flat tree, one address for each rank
		for r := range f.ranks { // fw 1544
			if f.me == f.root && r != f.root {
				f.offer(r, n)
			}
		}
		if f.me != f.root {
			f.write(f.root, 0, n, 1<<f.me) // fw 1593
		}
	default: // a binomial tree: fw 1645 to 1727
		have := uint(1) << f.me
		for d := 1; ; d *= 2 {
			if l%(2*d) != 0 { // fw 1647
				f.write((f.me-d+f.ranks)%f.ranks, 0, n, have)
				return
			}
			if l+d >= f.ranks { // fw 1648, 1717
				if l == 0 {
					return
				}
				continue
			}
			f.offer((f.me+d)%f.ranks, n) // fw 1659
			for i := range min(d, f.ranks-l-d) {
				have |= 1 << ((f.me + d + i) % f.ranks)
			}
		}
	}
}

// reduceScatter: by rendezvous all is reduced to rank 0, which scatters it (fw 1775, 1781); eager a ring in which a
// rank begins with the block before its own (fw 1798 to 1811), passes on the ones before that, and keeps its own.
func (f *reference) reduceScatter() {
	if f.byRendezvous(f.count) {
		f.root = 0
		f.reduce(f.count * f.ranks)
		f.scatter(1<<f.ranks - 1)
		return
	}
	for i := range f.ranks - 1 {
		block := (f.me - 1 - i + f.ranks) % f.ranks
		f.move(f.next(), block*f.count, f.count, f.chain(i))
	}
}

// allreduce: by rendezvous all is reduced to rank 0, which broadcasts it (fw 1881, 1887); eager two rings for each
// segment, whose elements are a multiple of the ranks (fw 1898 to 1900). The last chunk may be smaller (fw 1911).
func (f *reference) allreduce() {
	if f.byRendezvous(f.count) {
		f.root = 0
		f.reduce(f.count)
		f.bcast(f.count, 1<<f.ranks-1)
		return
	}
	segment := f.buffer / elementBytes
	segment -= segment % f.ranks
	for at := 0; at < f.count; at += segment {
		elements := min(segment, f.count-at)
		bulk := (elements + f.ranks - 1) / f.ranks
		send := func(chunk int, ranks uint) {
			n := bulk
			if chunk == f.ranks-1 {
				n = elements - bulk*(f.ranks-1)
			}
			f.move(f.next(), at+chunk*bulk, n, ranks)
		}
		for i := range f.ranks - 1 { // a rank begins with its own chunk (fw 1930 to 1938), then those before (fw 1943)
			send((f.me-i+f.ranks)%f.ranks, f.chain(i))
		}
		for i := range f.ranks - 1 { // it has finished the one behind its own (fw 1975), and begins with it (fw 2002)
			send((f.me+1-i+f.ranks)%f.ranks, 1<<f.ranks-1)
		}
	}
}
