package plan

// vector is a vector clock. A rank's own component grows with each release, so a rank that has not
// seen the release has a smaller one.
type vector []uint32

func (v vector) join(o vector) {
	for i, c := range o {
		if c > v[i] {
			v[i] = c
		}
	}
}

// release returns what others learn from a Notify or a Send of rank r now.
func (p *prover) release(r int) vector {
	st := &p.ranks[r]
	if st.released == nil {
		st.released = append(vector(nil), st.clock...)
		st.clock[r]++
	}
	return st.released
}

// await lets rank r go on if the phase has been reached. It learns what the
// first sufficient Notify says and no more, for it may have seen no later one.
func (p *prover) await(r int, s *Step) (bool, error) {
	st := &p.ranks[r]
	topo := p.plans[r].Request.Topo
	lo, hi := int(s.Peer), int(s.Peer)+1
	if s.Peer == All {
		lo, hi = 0, p.n
	}
	for peer := lo; peer < hi; peer++ {
		if peer != r && topo.Same(r, peer) && p.ranks[peer].reached(s.Phase) == nil {
			return false, nil
		}
	}
	for peer := lo; peer < hi; peer++ {
		if peer != r && topo.Same(r, peer) {
			st.clock.join(p.ranks[peer].reached(s.Phase).clock)
		}
	}
	st.released = nil
	st.pc++
	return true, nil
}

// reached returns the first Notify of at least phase.
func (st *rankState) reached(phase uint32) *mark {
	if st.phase < phase {
		return nil
	}
	i := len(st.notified) - 1
	for i > 0 && st.notified[i-1].phase >= phase {
		i--
	}
	return &st.notified[i]
}

// post starts a transfer: its memory is taken until the Wait.
func (p *prover) post(r int, s *Step) error {
	st := &p.ranks[r]
	po := &post{rank: r, step: st.pc, s: s}
	if err := p.claim(po); err != nil {
		return err
	}
	st.posted = append(st.posted, po)
	st.open++
	key := [2]int32{s.Peer, int32(r)} // from, to
	if s.Kind == Send {
		key = [2]int32{int32(r), s.Peer}
		po.sent = p.release(r)
	}
	l := p.links[key]
	if l == nil {
		l = new(linkState)
		p.links[key] = l
	}
	if s.Kind == Send {
		l.sends = append(l.sends, po)
	} else {
		l.recvs = append(l.recvs, po)
	}
	for len(l.sends) > 0 && len(l.recvs) > 0 {
		send, recv := l.sends[0], l.recvs[0]
		l.sends, l.recvs = l.sends[1:], l.recvs[1:]
		if err := p.transfer(send, recv); err != nil {
			return err
		}
	}
	return nil
}

// claim checks a transfer's accesses against what others did and do, and
// reserves them.
func (p *prover) claim(po *post) error {
	for _, ref := range po.s.Src {
		if err := p.reserve(po, ref, false); err != nil {
			return err
		}
	}
	for _, ref := range po.s.Dst {
		if err := p.reserve(po, ref, true); err != nil {
			return err
		}
	}
	if po.s.Kind == RecvReduce {
		return p.overlaps(po.rank, po.step, po.s)
	}
	return nil
}

func (p *prover) reserve(po *post, ref Ref, write bool) error {
	if po.s.N == 0 {
		return nil
	}
	m, lo, hi := p.span(ref, po.s.N)
	for _, c := range m.claims {
		if c.po != po && c.lo < hi && lo < c.hi && (write || c.write) {
			return p.errorf(po.rank, po.step, "step %d (%s) has posted this memory", c.po.step,
				p.plans[c.po.rank].StepText(c.po.step))
		}
	}
	if c := m.conflict(&p.histories, lo, hi, write, po.rank, p.ranks[po.rank].clock); c != nil {
		return p.race(po.rank, po.step, c)
	}
	m.claims = append(m.claims, claim{lo, hi, write, po})
	return nil
}

// access checks a local step's access and records it.
func (p *prover) access(r, pc int, ref Ref, n int, write bool) error {
	m, lo, hi := p.span(ref, n)
	for _, c := range m.claims {
		if c.lo < hi && lo < c.hi && (write || c.write) {
			return p.errorf(r, pc, "rank %d has posted this memory in step %d (%s)", c.po.rank, c.po.step,
				p.plans[c.po.rank].StepText(c.po.step))
		}
	}
	clock := p.ranks[r].clock
	if c := m.conflict(&p.histories, lo, hi, write, r, clock); c != nil {
		return p.race(r, pc, c)
	}
	m.mark(&p.histories, lo, hi, write, epoch{int32(r), clock[r]}, clock)
	return nil
}

func (p *prover) race(r, pc int, c *epoch) error {
	if p.ranks[c.rank].done {
		return p.errorf(r, pc, "data race: rank %d may have ended its plan before", c.rank)
	}
	return p.errorf(r, pc, "data race: nothing orders this access and one of rank %d", c.rank)
}

// transfer moves the symbols of a message.
func (p *prover) transfer(send, recv *post) error {
	if send.s.N != recv.s.N {
		return p.errorf(send.rank, send.step, "%d elements meet a receive of %d on rank %d, step %d (%s)",
			send.s.N, recv.s.N, recv.rank, recv.step, p.plans[recv.rank].StepText(recv.step))
	}
	send.partner, recv.partner = recv, send
	p.ranks[send.rank].open--
	p.ranks[recv.rank].open--
	n := send.s.N
	if n == 0 {
		return nil
	}
	m, lo, hi := p.span(send.s.Src[0], n)
	p.runs = m.read(p.runs[:0], lo, hi)
	if recv.s.Kind == RecvReduce {
		message := append([]run(nil), p.runs...)
		p.runs = p.runs[:0]
		if err := p.fold(recv.rank, recv.step, recv.s, recv.s.Src, message); err != nil {
			return err
		}
	}
	m, lo, _ = p.span(recv.s.Dst[0], n)
	m.write(lo, p.runs, epoch{int32(recv.rank), p.ranks[recv.rank].clock[recv.rank]})
	return nil
}

// complete ends a rank's posted transfers: their accesses count as done now.
func (p *prover) complete(r int) {
	st := &p.ranks[r]
	for _, po := range st.posted {
		if po.s.Kind != Send {
			st.clock.join(po.partner.sent)
		}
	}
	now := epoch{int32(r), st.clock[r]}
	finish := func(po *post, ref Ref, write bool) {
		if po.s.N > 0 {
			m, lo, hi := p.span(ref, po.s.N)
			m.mark(&p.histories, lo, hi, write, now, st.clock)
			m.unclaim(po)
		}
	}
	for _, po := range st.posted {
		for _, ref := range po.s.Src {
			finish(po, ref, false)
		}
		for _, ref := range po.s.Dst {
			finish(po, ref, true)
		}
	}
	st.posted = st.posted[:0]
	st.released = nil
}
