package hostmem

import "testing"

// predictorTag is the hash of address bits 12 to 27 that Zen's L1 way predictor uses, as published for Zen 2. It has
// eight bits, each the sum of one of the lower and one of the upper address bits.
func predictorTag(page int) (tag int) {
	for i, pair := range [8][2]int{{12, 27}, {13, 26}, {14, 25}, {15, 20}, {16, 21}, {17, 22}, {18, 23}, {19, 24}} {
		tag |= (page>>(pair[0]-12) ^ page>>(pair[1]-12)) & 1 << i
	}
	return tag
}

// clash is the share of pages of two long buffers streamed together that have equal tags.
func clash(a, b int) float64 {
	n, pages := 0, colorSpan/4096
	for i := range pages {
		if predictorTag(a+i) == predictorTag(b+i) {
			n++
		}
	}
	return float64(n) / float64(pages)
}

func TestColorsDoNotAlias(t *testing.T) {
	if pageSize != 4096 {
		t.Skip("the numbers are for 4 KiB pages")
	}
	if clash(0, 0) != 1 {
		t.Fatal("the measure is broken")
	}
	type place struct{ rank, band int }
	at := map[int]place{}
	for rank := range 170 {
		for band := range bands {
			c := colorOf(rank, band)
			if c < 0 || c >= colorSpan/pageSize {
				t.Fatalf("rank %d band %d has colour %d", rank, band, c)
			}
			if p, taken := at[c]; taken {
				t.Fatalf("rank %d band %d and rank %d band %d have the same colour", rank, band, p.rank, p.band)
			}
			at[c] = place{rank, band}
		}
	}
	for rank := range 16 {
		for band := range 8 {
			if rank == 0 && band == 0 {
				continue
			}
			if f := clash(0, colorOf(rank, band)); f > 0.01 {
				t.Errorf("rank %d band %d clashes with rank 0 band 0 on %.1f %% of the pages", rank, band, f*100)
			}
		}
	}
}

func TestSegmentsAreColored(t *testing.T) {
	checkLeaks(t)
	palette.Lock()
	saved, decided := palette.rank, palette.decided
	palette.Unlock()
	set := func(rank int, decided bool) {
		palette.Lock()
		defer palette.Unlock()
		palette.rank, palette.decided = rank, decided
	}
	defer set(saved, decided)
	seen := map[uintptr]bool{}
	for rank := range 4 {
		set(rank, false)
		SetColor(rank)
		SetColor(rank + 1) // the first one has decided
		for range 4 {
			b, err := Alloc(largeSize)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Free()
			residue := uintptr(b.Pointer()) % colorSpan
			if int(residue)/pageSize != b.Segment().Color() {
				t.Errorf("at %p: not at its colour %d", b.Pointer(), b.Segment().Color())
			}
			if seen[residue] {
				t.Errorf("residue %#x of rank %d is taken", residue, rank)
			}
			seen[residue] = true
			if got := int(residue) % bandStep / pageSize; got != rank*rankPages {
				t.Errorf("rank %d lies %d pages from its band", rank, got)
			}
		}
	}
}

// Bands of closed segments are taken again before any band is shared.
func TestBandsAreShared(t *testing.T) {
	if !memoryFiles {
		t.Skip("segments are of Linux")
	}
	checkLeaks(t)
	var live []*Segment
	defer func() {
		for _, s := range live {
			s.Close()
		}
	}()
	colors, before := map[int]bool{}, ReadStats().Segments
	for len(live) < bands {
		s, err := NewSegment(1)
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, s)
		colors[s.Color()] = true
	}
	if len(colors) < bands-before {
		t.Errorf("%d segments have %d colours, with %d segments there before", bands, len(colors), before)
	}
	for _, i := range []int{10, 30, 20} {
		freed := live[i].Color()
		live[i].Close()
		s, err := NewSegment(1)
		if err != nil {
			t.Fatal(err)
		}
		live[i] = s
		if s.Color() != freed {
			t.Errorf("colour %d, want the free one %d", s.Color(), freed)
		}
	}
}
