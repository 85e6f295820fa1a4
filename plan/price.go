package plan

// Price estimates the seconds that one rank spends on its plan. It adds up the
// steps and takes the others to be in time, which holds for symmetric
// algorithms; a tree needs a Cost of its own.
func Price(p *Plan, m Machine) float64 {
	q := p.Request
	crowd, sync := m.crowd(q), m.sync(q)
	var total float64
	var posted batch
	for i := range p.Steps {
		s := &p.Steps[i]
		bytes := float64(s.N * q.ElemSize)
		switch s.Kind {
		case Send, Recv, RecvReduce:
			link := m.Remote
			if q.Topo.Same(q.Rank, int(s.Peer)) {
				link = m.Local
				link.Latency = max(link.Latency, sync)
			}
			posted.add(s, link, bytes)
			if s.Kind == RecvReduce {
				posted.reduce += bytes * crowd / m.Reduce
			}
		case Wait:
			total += posted.time()
			posted = batch{}
		case Copy:
			total += bytes * (float64(1+len(s.Dst))/2 + crossing(s.Src, q.Rank)) * crowd / m.Copy
		case Fold:
			total += bytes * (float64(len(s.Src)+len(s.Dst))/3/m.Reduce + crossing(s.Src, q.Rank)/m.Copy) * crowd
		case Await:
			total += sync
		}
	}
	return total
}

// crossing counts the operands that another rank has just written: their bytes first have to cross to this core, which
// takes at least as long as a copy within its caches.
func crossing(src []Ref, rank int) float64 {
	n := 0
	for _, r := range src {
		if r.Buf == Stage && int(r.Rank) != rank {
			n++
		}
	}
	return float64(n)
}

// batch is what was posted since the last Wait. Both directions run at once;
// the reduction of what arrives is counted in full.
type batch struct {
	latency, overhead float64
	out, in, reduce   float64
}

func (b *batch) add(s *Step, l LinkCost, bytes float64) {
	b.latency = max(b.latency, l.Latency)
	b.overhead += l.Overhead
	if s.Kind == Send {
		b.out += bytes / l.Bandwidth
	} else {
		b.in += bytes / l.Bandwidth
	}
}

func (b *batch) time() float64 {
	return b.latency + b.overhead + max(b.out, b.in) + b.reduce
}
