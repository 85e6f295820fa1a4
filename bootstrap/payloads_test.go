package bootstrap

import (
	"bytes"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// TestPayloads writes and reads payloads of all kinds, and cuts and damages the record.
func TestPayloads(t *testing.T) {
	one, two := []byte("one"), []byte("two")
	for _, all := range [][][]byte{{one, two, two, one}, {one, one}, {{}, {}, one}, {two}} {
		record := appendPayloads(nil, all)
		got, err := parsePayloads(record, len(all))
		if err != nil || !slices.EqualFunc(got, all, bytes.Equal) {
			t.Errorf("%q became %q, %v", all, got, err)
		}
		for cut := range record {
			if got, err := parsePayloads(record[:cut], len(all)); err == nil {
				t.Errorf("%q, cut at %d, became %q", all, cut, got)
			}
		}
		for _, size := range []int{len(all) - 1, len(all) + 1} {
			if got, err := parsePayloads(record, size); err == nil {
				t.Errorf("%q became %q of %d ranks", all, got, size)
			}
		}
	}
}

// TestLargePayloads exchanges more than the last rank publishes: then each rank reads what the others have set.
func TestLargePayloads(t *testing.T) {
	st := store.NewHash(0)
	defer st.Close()
	const size = 3
	var ranks sync.WaitGroup
	for r := range size {
		ranks.Go(func() {
			mine := append([]byte(strconv.Itoa(r)), make([]byte, maxShared/2)...)
			all, err := NewRendezvous(st, r, size).Exchange(t.Context(), secure.Secret{}, mine)
			if err != nil || len(all) != size {
				t.Errorf("rank %d: %d payloads, %v", r, len(all), err)
				return
			}
			for i, b := range all {
				if len(b) != len(mine) || string(b[:1]) != strconv.Itoa(i) {
					t.Errorf("rank %d got %d bytes of rank %d, which begin with %q", r, len(b), i, b[:1])
				}
			}
		})
	}
	ranks.Wait()
}

func FuzzPayloads(f *testing.F) {
	f.Add(appendPayloads(nil, [][]byte{{1}, {1}, {}}))
	f.Add(bytes.Repeat([]byte{0xff}, 20))
	f.Fuzz(func(t *testing.T, record []byte) {
		if all, err := parsePayloads(record, 3); err == nil && len(all) != 3 {
			t.Fatalf("%d payloads", len(all))
		}
	})
}
