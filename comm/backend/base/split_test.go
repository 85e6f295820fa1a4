package base

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/tensor"
)

// gathering is an all-gather of ranks that are goroutines of a test.
type gathering struct {
	size int
	mu   sync.Mutex
	cond *sync.Cond
	came map[uint64]int
	rows map[uint64][]int64
}

func (x *gathering) run(rank int, seq *uint64, words *int) func(op *backend.Op) error {
	return func(op *backend.Op) error {
		*seq++
		op.Seq = *seq
		in, err := tensor.Slice[int64](op.In)
		if err != nil {
			return err
		}
		out, err := tensor.Slice[int64](op.Out)
		if err != nil {
			return err
		}
		*words += len(out)
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.rows[op.Seq] == nil {
			x.rows[op.Seq] = make([]int64, len(out))
		}
		copy(x.rows[op.Seq][rank*len(in):], in)
		for x.came[op.Seq]++; x.came[op.Seq] < x.size; {
			x.cond.Wait()
		}
		x.cond.Broadcast()
		copy(out, x.rows[op.Seq])
		return nil
	}
}

// TestOffers has ranks split into parts that agree, which costs four words of each, and that don't, which every rank
// finds out with the lists.
func TestOffers(t *testing.T) {
	for _, c := range []struct {
		lists [][]int
		agree bool
	}{
		{[][]int{{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}}, true},
		{[][]int{{2, 0}, {1}, {2, 0}, nil}, true},
		{[][]int{nil, nil, nil, nil}, true},
		{[][]int{{0, 1}, {1, 0}, nil, nil}, false},
		{[][]int{{0, 1}, nil, nil, nil}, false},
		{[][]int{{0, 1}, {0, 1}, {2, 3}, {1, 3}}, false},
		{[][]int{{0, 1, 2}, {0, 1, 2}, {1, 2}, nil}, false},
	} {
		n := len(c.lists)
		x := &gathering{size: n, came: map[uint64]int{}, rows: map[uint64][]int64{}}
		x.cond = sync.NewCond(&x.mu)
		verdicts := make([]string, n)
		var ranks sync.WaitGroup
		for r, list := range c.lists {
			ranks.Go(func() {
				var last uint64
				words := 0
				mine := Offer{ID: uint32(10 + r), Own: 20 + r, List: list}
				offers, seq, err := Offers(mine, n, backend.Op{}, x.run(r, &last, &words))
				if err != nil || seq != 1 || last != 1 && c.agree || last != 2 && !c.agree || c.agree && words != 4*n {
					t.Errorf("%v, rank %d: operation %d of %d, %d words, %v", c.lists, r, seq, last, words, err)
				}
				for q, o := range offers {
					if o.ID != uint32(10+q) || o.Own != 20+q || !c.agree && !slices.Equal(o.List, c.lists[q]) {
						t.Errorf("%v, rank %d has %+v of rank %d", c.lists, r, o, q)
					}
				}
				verdicts[r] = fmt.Sprint(new(Life).Agreed(offers))
			})
		}
		ranks.Wait()
		for r, v := range verdicts {
			if (v == fmt.Sprint(nil)) != c.agree || v != verdicts[0] {
				t.Errorf("%v, rank %d: %s", c.lists, r, v)
			}
		}
	}
}
