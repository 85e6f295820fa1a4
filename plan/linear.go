package plan

// Linear gather and scatter: the root exchanges one message with every other
// rank. No block travels twice, which suits large and uneven blocks.

func init() {
	builtin(Algorithm{Name: "linear", Collective: Gather, Doc: "one message from every rank", Tags: []string{"large"},
		Cost: costLinear},
		(*Builder).linearGather)
	builtin(Algorithm{Name: "linear", Collective: Scatter, Doc: "one message to every rank", Tags: []string{"large"},
		Cost: costLinear},
		(*Builder).linearScatter)
}

func (b *Builder) linearGather() {
	l := b.layout()
	if b.Rank != b.Root {
		b.Send(b.Root, l.size(b.Rank), b.In(0))
		b.Wait()
		return
	}
	for r := range b.World {
		if r != b.Root {
			b.Recv(r, l.size(r), b.Out(l.off(r)))
		}
	}
	b.Copy(l.size(b.Root), b.In(0), b.Out(l.off(b.Root)))
	b.Wait()
}

func (b *Builder) linearScatter() {
	l := b.layout()
	if b.Rank != b.Root {
		b.Recv(b.Root, l.size(b.Rank), b.Out(0))
		b.Wait()
		return
	}
	for r := range b.World {
		if r != b.Root {
			b.Send(r, l.size(r), b.In(l.off(r)))
		}
	}
	b.Copy(l.size(b.Root), b.In(l.off(b.Root)), b.Out(0))
	b.Wait()
}
