package plan

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Parse reads the text form of one plan, as golden files and tests of wrong plans have it. It checks the form alone;
// whether the plan is right, ProvePlans says.
func Parse(text string) (*Plan, error) {
	p := new(Plan)
	header := true
	for i, row := range strings.Split(text, "\n") {
		row = strings.TrimSpace(row)
		if row == "" {
			continue
		}
		var err error
		if header {
			err, header = p.parseHeader(row), false
		} else {
			err = p.parseStep(row)
		}
		if err != nil {
			return nil, fmt.Errorf("plan: line %d: %w", i+1, err)
		}
	}
	if header {
		return nil, errors.New("plan: no plan in an empty text")
	}
	return p, nil
}

func (p *Plan) parseHeader(row string) error {
	words := strings.Fields(row)
	if len(words) < 2 {
		return errors.New("a plan starts with its collective and its algorithm")
	}
	q := &p.Request
	var err error
	if q.Collective, err = ParseCollective(words[0]); err != nil {
		return err
	}
	if p.Algorithm = words[1]; !validName(p.Algorithm) {
		return fmt.Errorf("bad algorithm name %q", p.Algorithm)
	}
	nums := map[string]*int{"world": &q.World, "rank": &q.Rank, "root": &q.Root, "count": &q.Count, "elem": &q.ElemSize,
		"stage_bytes": &q.StageBytes, "chunk_bytes": &q.ChunkBytes, "tmp": &p.Tmp, "stage": &p.Stage}
	var hosts []int
	lists := map[string]*[]int{"counts": &q.Counts, "send": &q.SendCounts, "recv": &q.RecvCounts, "hosts": &hosts}
	flags := map[string]*bool{"in_place": &q.InPlace, "mapped": &p.Mapped}
	for _, word := range words[2:] {
		key, value, isPair := strings.Cut(word, "=")
		switch {
		case isPair && nums[key] != nil:
			if *nums[key], err = parseInt(value, math.MaxInt32*int64(1<<20)); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		case isPair && lists[key] != nil:
			list := []int{}
			for item := range strings.SplitSeq(value, ",") {
				n, err := parseInt(item, math.MaxInt32*int64(1<<20))
				if err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
				list = append(list, n)
			}
			*lists[key] = list
		case !isPair && flags[key] != nil:
			*flags[key] = true
		default:
			return fmt.Errorf("unknown word %q", word)
		}
	}
	if hosts != nil {
		q.Topo = &Topology{Host: hosts}
	}
	return nil
}

func parseInt(s string, most int64) (int, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("bad number %q", s)
	}
	return int(n), nil
}

// parseStep reads "[number] kind [peer] [phase] [src + src] [-> dst, dst] [final]".
func (p *Plan) parseStep(row string) error {
	words := strings.Fields(row)
	if _, err := strconv.Atoi(words[0]); err == nil {
		words = words[1:]
	}
	next := func() string {
		if len(words) == 0 {
			return ""
		}
		w := words[0]
		words = words[1:]
		return w
	}
	var s Step
	name := next()
	for k, known := range kindNames {
		if k > 0 && name == known {
			s.Kind = Kind(k)
		}
	}
	peer := func() error {
		n, err := parseInt(next(), math.MaxInt32)
		s.Peer = int32(n)
		return err
	}
	phase := func() error {
		n, err := parseInt(next(), math.MaxUint32)
		s.Phase = uint32(n)
		return err
	}
	var err error
	switch s.Kind {
	case 0:
		return fmt.Errorf("unknown step %q", name)
	case Send, Recv, RecvReduce:
		err = peer()
	case Notify:
		err = phase()
	case Await:
		if len(words) > 0 && words[0] == "all" {
			next()
			s.Peer = All
		} else {
			err = peer()
		}
		if err == nil {
			err = phase()
		}
	}
	if err != nil {
		return err
	}
	if len(words) > 0 && words[len(words)-1] == "final" {
		s.Final = true
		words = words[:len(words)-1]
	}
	src, dst, arrow := strings.Cut(strings.Join(words, " "), "->")
	s.N = -1
	if s.Src, err = p.parseRefs(src, "+", &s.N); err != nil {
		return err
	}
	if s.Dst, err = p.parseRefs(dst, ",", &s.N); err != nil {
		return err
	}
	if arrow && s.Dst == nil {
		return errors.New("nothing after ->")
	}
	if err := s.checkForm(); err != nil {
		return err
	}
	s.N = max(0, s.N)
	p.Steps = append(p.Steps, s)
	return nil
}

func (p *Plan) parseRefs(text, between string, n *int) ([]Ref, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var refs []Ref
	for item := range strings.SplitSeq(text, between) {
		r, size, err := p.parseRef(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		if *n >= 0 && size != *n {
			return nil, fmt.Errorf("%s has %d elements, others of its step have %d", item, size, *n)
		}
		*n = size
		refs = append(refs, r)
	}
	return refs, nil
}

func (p *Plan) parseRef(text string) (r Ref, n int, err error) {
	bad := fmt.Errorf("bad place %q", text)
	place, span, ok := strings.Cut(text, "[")
	span, closed := strings.CutSuffix(span, "]")
	lo, hi, pair := strings.Cut(span, ":")
	if !ok || !closed || !pair {
		return r, 0, bad
	}
	name, of, other := strings.Cut(place, "@")
	r.Rank = int32(p.Request.Rank)
	if other {
		rank, err := parseInt(of, math.MaxInt32)
		if err != nil {
			return r, 0, bad
		}
		r.Rank = int32(rank)
	}
	found := false
	for b, known := range bufNames {
		if name == known {
			r.Buf, found = Buf(b), true
		}
	}
	start, err1 := parseInt(lo, math.MaxInt64/2)
	end, err2 := parseInt(hi, math.MaxInt64/2)
	if !found || err1 != nil || err2 != nil || end < start {
		return r, 0, bad
	}
	r.Off = start
	return r, end - start, nil
}
