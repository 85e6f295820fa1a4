package cache

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// workload is a list of requests: n > 0 allocates n bytes under the next number, and n < 0 frees number -n-1.
type workload struct {
	name     string
	requests []int64
}

func (w *workload) alloc(n int64) (number int) {
	for _, r := range w.requests {
		if r > 0 {
			number++
		}
	}
	w.requests = append(w.requests, n)
	return number
}

func (w *workload) free(number int) { w.requests = append(w.requests, -int64(number)-1) }

// workloads are three programs in miniature.
func workloads() []workload {
	r := rand.New(rand.NewPCG(5, 6))
	mixed := workload{name: "sizes from 512 B to 32 MiB, any order"}
	var live []int
	for range 6000 {
		if len(live) > 150 || len(live) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(live))
			mixed.free(live[i])
			live = slices.Delete(live, i, i+1)
			continue
		}
		k := r.IntN(16)
		live = append(live, mixed.alloc(512<<k+r.Int64N(512<<k)))
	}

	training := workload{name: "training, 24 layers, other sequence lengths each step"}
	for range 24 {
		training.alloc(12 << 20) // weights
		training.alloc(24 << 20) // the optimizer's
	}
	for range 40 {
		tokens := int64(128 + r.IntN(1920))
		var kept []int
		for range 24 {
			scratch := training.alloc(tokens * 4096)
			kept = append(kept, training.alloc(tokens*1024*2), training.alloc(tokens*4))
			training.free(scratch)
		}
		for layer := 23; layer >= 0; layer-- {
			gradient := training.alloc(tokens * 1024 * 2)
			training.free(kept[2*layer])
			training.free(kept[2*layer+1])
			training.free(gradient)
		}
	}

	serving := workload{name: "serving, caches that grow by copying"}
	type request struct {
		cache  int
		tokens int64
	}
	var active []request
	for range 3000 {
		if len(active) < 16 && r.IntN(4) == 0 {
			n := int64(64 + r.IntN(512))
			active = append(active, request{serving.alloc(n * 16384), n})
		}
		if len(active) == 0 {
			continue
		}
		i := r.IntN(len(active))
		serving.free(active[i].cache)
		if active[i].tokens > 1500 || r.IntN(12) == 0 {
			active = slices.Delete(active, i, i+1)
			continue
		}
		active[i].tokens += 64
		active[i].cache = serving.alloc(active[i].tokens * 16384)
	}
	return []workload{mixed, training, serving}
}

// run serves a workload and returns the most that was in use, and the most that was held.
func (w *workload) run(malloc func(n int64) uintptr, free func(uintptr), held func() int64) (inUse, reserved int64) {
	var addrs []uintptr
	var sizes []int64
	var now int64
	for _, n := range w.requests {
		if n > 0 {
			addrs, sizes = append(addrs, malloc(n)), append(sizes, n)
			now += n
		} else {
			free(addrs[-n-1])
			now -= sizes[-n-1]
		}
		inUse, reserved = max(inUse, now), max(reserved, held())
	}
	return inUse, reserved
}

// bestFit is the plain allocator for comparison: one range of memory from 0 on, in blocks of a multiple of 512 bytes.
// It takes the smallest block that is large enough, splits it, and merges free neighbours. It holds all memory up to
// the highest address that it ever used.
type bestFit struct {
	blocks []modelBlock
}

func (f *bestFit) malloc(n int64) uintptr {
	n = (n + 511) / 512 * 512
	best := -1
	for i, b := range f.blocks {
		if b.state == modelFree && b.size >= n && (best < 0 || b.size < f.blocks[best].size) {
			best = i
		}
	}
	if best < 0 { // at the end, as far as that is free
		at := uintptr(f.end())
		if last := len(f.blocks) - 1; last >= 0 && f.blocks[last].state == modelFree {
			at = f.blocks[last].addr
			f.blocks = f.blocks[:last]
		}
		f.blocks = append(f.blocks, modelBlock{addr: at, size: n, state: modelUsed})
		return at
	}
	b := &f.blocks[best]
	b.state = modelUsed
	addr := b.addr
	if rest := b.size - n; rest > 0 {
		b.size = n
		f.blocks = slices.Insert(f.blocks, best+1, modelBlock{addr: addr + uintptr(n), size: rest})
	}
	return addr
}

func (f *bestFit) free(addr uintptr) {
	i, _ := slices.BinarySearchFunc(f.blocks, addr, func(b modelBlock, a uintptr) int { return int(b.addr) - int(a) })
	f.blocks[i].state = modelFree
	for _, j := range []int{i, i - 1} { // with the next, and with the one before
		if j >= 0 && j+1 < len(f.blocks) && f.blocks[j].state == modelFree && f.blocks[j+1].state == modelFree {
			f.blocks[j].size += f.blocks[j+1].size
			f.blocks = slices.Delete(f.blocks, j+1, j+2)
		}
	}
}

func (f *bestFit) end() int64 {
	if len(f.blocks) == 0 {
		return 0
	}
	last := f.blocks[len(f.blocks)-1]
	return int64(last.addr) + last.size
}

// TestFragmentation measures how much more than what is in use each way of allocating holds at most, and demands that
// the table in the documentation says so.
func TestFragmentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/memory-allocator.md")
	must(t, err)
	for _, w := range workloads() {
		row := "| " + w.name
		add := func(inUse, reserved int64) {
			if row == "| "+w.name {
				row += fmt.Sprintf(" | %d MiB", inUse>>20)
			}
			row += fmt.Sprintf(" | %.3f", float64(reserved)/float64(inUse))
		}
		var plain bestFit
		add(w.run(plain.malloc, plain.free, plain.end))
		for _, text := range []string{"", "expandable_segments:True", "roundup_power2_divisions:8"} {
			c := open(t, expandableFake{newFake(64 << 30)}, conf(t, text))
			add(w.run(func(n int64) uintptr { return malloc(t, c, n, 0) }, func(p uintptr) { must(t, c.Free(p)) },
				func() int64 { return c.Stats().ReservedBytes[All].Current }))
			verify(t, c)
		}
		row += " |"
		t.Log(row)
		if !strings.Contains(string(page), row+"\n") {
			t.Errorf("docs/memory-allocator.md lacks the row\n%s", row)
		}
	}
}
