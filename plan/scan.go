package plan

import "math/bits"

// A scan combines the inputs of the ranks up to one's own. A rank adds its input to the result of the one before it,
// for which it waits (chain); or adds at each step what the rank at twice the distance has so far (doubling: Hillis and
// Steele, "Data parallel algorithms", 1986).

func init() {
	builtin(Algorithm{Name: "chain", Collective: Scan, Doc: "from each rank to the next, in pieces",
		Tags: []string{"large"}, Cost: costChainScan}, (*Builder).chainScan)
	builtin(Algorithm{Name: "doubling", Collective: Scan,
		Doc:  "from ranks at distance 1, 2, 4, ...; fewest messages in a row",
		Tags: []string{"small"}, Cost: costDoublingScan}, (*Builder).doublingScan)
}

func (b *Builder) chainScan() {
	next := b.Rank + 1
	if b.Rank == 0 {
		b.Copy(b.Count, b.In(0), b.Out(0))
	}
	b.eachPiece(b.Count, func(o, k int) {
		if b.Rank > 0 {
			b.RecvReduce(b.Rank-1, k, b.In(o), b.Out(o), false)
			b.Wait() // for the piece before to be sent, too
		}
		if next < b.World {
			b.Send(next, k, b.Out(o))
		}
	})
	b.Wait()
}

func (b *Builder) doublingScan() {
	// A buffer can't be written while it's being sent. So the result alternates between Out and Tmp, and begins in
	// the one from which it ends in Out.
	cur, left := b.In(0), bits.Len(uint(b.Rank))
	if b.Rank == 0 {
		b.Copy(b.Count, cur, b.Out(0))
	}
	for d := 1; d < b.World; d <<= 1 {
		if to := b.Rank + d; to < b.World {
			b.eachPiece(b.Count, func(o, k int) { b.Send(to, k, cur.Plus(o)) })
		}
		if from := b.Rank - d; from >= 0 {
			left--
			to := b.Out(0)
			if left%2 == 1 {
				to = b.Tmp(0)
			}
			if b.home(to) == b.home(cur) { // only in place, before the first sum
				b.eachPiece(b.Count, func(o, k int) { b.Recv(from, k, b.Tmp(o)) })
				b.Wait()
				b.Fold(b.Count, false, []Ref{cur, b.Tmp(0)}, to)
			} else {
				b.eachPiece(b.Count, func(o, k int) { b.RecvReduce(from, k, cur.Plus(o), to.Plus(o), false) })
			}
			cur = to
		}
		b.Wait()
	}
}

func costChainScan(q Request, m Machine) float64 {
	t := newTerms(q, m)
	pieces := float64((q.Count + q.piece(q.Count) - 1) / q.piece(q.Count))
	each := t.bytes / max(1, pieces)
	return (t.n + max(1, pieces) - 2) * (t.time(each) + each*t.reduce)
}

func costDoublingScan(q Request, m Machine) float64 {
	t := newTerms(q, m)
	return t.levels * (t.time(t.bytes*t.detour()) + t.bytes*t.reduce)
}
