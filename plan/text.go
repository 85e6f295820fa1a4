package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// The text form of a plan is a line that describes the request and a numbered
// line per step:
//
//	all_reduce ring world=2 rank=0 count=6 elem=64 tmp=0 stage=0
//	  0  send 1 in[0:3]
//	  1  recv_reduce 1 in[3:6] -> out[3:6] final
//	  2  wait
//
// A place is a buffer with a half-open range of elements; out@2[0:3] is memory
// of rank 2. Parse reads what Format writes.

// String returns the text form.
func (p *Plan) String() string { return Format(p) }

// Format returns the text form of a plan.
func Format(p *Plan) string {
	var b strings.Builder
	q := &p.Request
	fmt.Fprintf(&b, "%s %s world=%d rank=%d", q.Collective, p.Algorithm, q.World, q.Rank)
	num := func(key string, n int) {
		if n != 0 {
			fmt.Fprintf(&b, " %s=%d", key, n)
		}
	}
	list := func(key string, ns []int) {
		if ns != nil {
			b.WriteString(" " + key + "=")
			for i, n := range ns {
				if i > 0 {
					b.WriteByte(',')
				}
				b.WriteString(strconv.Itoa(n))
			}
		}
	}
	flag := func(key string, on bool) {
		if on {
			b.WriteString(" " + key)
		}
	}
	num("root", q.Root)
	num("count", q.Count)
	list("counts", q.Counts)
	list("send", q.SendCounts)
	list("recv", q.RecvCounts)
	num("elem", q.ElemSize)
	if q.Topo != nil {
		list("hosts", q.Topo.Host)
	}
	num("stage_bytes", q.StageBytes)
	num("chunk_bytes", q.ChunkBytes)
	flag("in_place", q.InPlace)
	num("tmp", p.Tmp)
	num("stage", p.Stage)
	flag("mapped", p.Mapped)
	b.WriteByte('\n')
	for i := range p.Steps {
		fmt.Fprintf(&b, "%4d  %s\n", i, p.StepText(i))
	}
	return b.String()
}

// StepText returns the text form of step i.
func (p *Plan) StepText(i int) string {
	s := &p.Steps[i]
	b := append(make([]byte, 0, 64), s.Kind.String()...)
	switch s.Kind {
	case Send, Recv, RecvReduce:
		b = strconv.AppendInt(append(b, ' '), int64(s.Peer), 10)
	case Notify:
		b = strconv.AppendUint(append(b, ' '), uint64(s.Phase), 10)
	case Await:
		if s.Peer == All {
			b = append(b, " all "...)
		} else {
			b = append(strconv.AppendInt(append(b, ' '), int64(s.Peer), 10), ' ')
		}
		b = strconv.AppendUint(b, uint64(s.Phase), 10)
	}
	b = appendRefs(b, " ", " + ", s.Src, s.N, p.Request.Rank)
	b = appendRefs(b, " -> ", ", ", s.Dst, s.N, p.Request.Rank)
	if s.Final {
		b = append(b, " final"...)
	}
	return string(b)
}

func appendRefs(b []byte, before, between string, refs []Ref, n, rank int) []byte {
	for i, r := range refs {
		if i == 0 {
			b = append(b, before...)
		} else {
			b = append(b, between...)
		}
		b = append(b, r.Buf.String()...)
		if int(r.Rank) != rank {
			b = strconv.AppendInt(append(b, '@'), int64(r.Rank), 10)
		}
		b = strconv.AppendInt(append(b, '['), int64(r.Off), 10)
		b = strconv.AppendInt(append(b, ':'), int64(r.Off+n), 10)
		b = append(b, ']')
	}
	return b
}
