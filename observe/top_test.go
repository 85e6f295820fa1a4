package observe_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
	"github.com/chorus-comms/chorus/tensor"
)

// TestTop looks twice at three ranks, of which one has not entered the collective that another is in, and a third is
// stopped.
func TestTop(t *testing.T) {
	members := []int{0, 1, 2}
	look := func(at int64, ops uint64) []observe.Answer {
		rank := func(r int, last uint64, op string) observe.Answer {
			return observe.Answer{Live: &observe.Live{Job: "train", Rank: r, Size: 3, Pid: 100 + r, Time: at,
				Comms: []observe.LiveComm{
					{Name: "world", Rank: r, Members: members, Ops: ops, Bytes: 1000 * ops, Last: last, Op: op, Seq: last, For: 1.5}}}}
		}
		return []observe.Answer{rank(0, 12, "barrier"), rank(1, 11, ""), {Path: "/run/train_rank_2.sock",
			Err: os.ErrDeadlineExceeded}}
	}
	top := observe.NewTop(look(1e9, 10), look(3e9, 30))
	if len(top.Rows) != 2 || top.Rows[0].OpsPerSec != 10 || top.Rows[0].BytesPerSec != 10_000 || top.Rows[1].Rank != 1 {
		t.Errorf("rows %+v", top.Rows)
	}
	if len(top.Silent) != 1 || top.Silent[0] != (observe.Silent{Rank: 2}) {
		t.Errorf("silent %+v", top.Silent)
	}
	if len(top.Waits) != 1 || !slices.Equal(top.Waits[0].Waiting, []int{0}) || !slices.Equal(top.Waits[0].For,
		[]int{1, 2}) {
		t.Errorf("waits %+v", top.Waits)
	}
	for _, want := range []string{"rank 0 waits for ranks 1-2 in barrier #12 of \"world\", for 1.50 s",
		"rank 2 does not answer", "10 KB", "none since #11"} {
		if !strings.Contains(top.String(), want) {
			t.Errorf("%q is missing in\n%v", want, top)
		}
	}
}

// TestTopTwins looks at two communicators of the same name and members: each has its own rates, and its own waits.
func TestTopTwins(t *testing.T) {
	look := func(at int64, first, second uint64) (all []observe.Answer) {
		for r := range 2 {
			comm := func(index int, ops uint64) observe.LiveComm {
				return observe.LiveComm{Name: "world", Rank: r, Members: []int{0, 1}, Index: index, Ops: ops, Last: ops}
			}
			a, b := comm(0, first), comm(1, second)
			if r == 0 {
				b.Op, b.Seq, b.Last = "barrier", second+1, second+1
			}
			all = append(all, observe.Answer{Live: &observe.Live{Job: "train", Rank: r, Size: 2, Pid: 100 + r, Time: at,
				Comms: []observe.LiveComm{a, b}}})
		}
		return all
	}
	top := observe.NewTop(look(1e9, 1000, 10), look(2e9, 3000, 15))
	if len(top.Rows) != 4 || top.Rows[0].OpsPerSec != 2000 || top.Rows[1].OpsPerSec != 5 {
		t.Errorf("rows %+v", top.Rows)
	}
	if len(top.Waits) != 1 || top.Waits[0].Comm != "world (2)" || top.Waits[0].Seq != 16 || !slices.Equal(top.Waits[0].For,
		[]int{1}) {
		t.Errorf("waits %+v", top.Waits)
	}
	if top = observe.NewTop(look(1e9, 1000, 10), look(2e9, 5, 15)); top.Rows[0].OpsPerSec != -1 { // made anew
		t.Errorf("rows %+v", top.Rows)
	}
	dir := t.TempDir()
	w := record.Open(record.Settings{Entries: 8, Dir: dir}, "twins", "world", 0, 2)
	a, b := w.Split("half", 0, []int{0}), w.Split("half", 0, []int{0})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	live, err := observe.AskLive(ctx, dir)
	if err != nil || len(live) != 1 || live[0].Err != nil {
		t.Fatalf("%+v, %v", live, err)
	}
	var indexes []int
	for _, c := range live[0].Live.Comms {
		indexes = append(indexes, c.Index)
	}
	if !slices.Equal(indexes, []int{0, 0, 1}) {
		t.Errorf("indexes %v", indexes)
	}
	for _, r := range []*record.Recorder{a, b, w} {
		r.Close()
	}
}

// TestStatusServer asks a rank of this process by its socket, whose path is longer than those of sockets may be and
// looks like a pattern, and where a dead process has left another.
func TestStatusServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40)+"[1]")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mknod(filepath.Join(dir, "train_rank_1.sock"), syscall.S_IFSOCK|0o600, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := record.Open(record.Settings{Entries: 8, Dir: dir}, "train", "world", 1, 2)
	id := r.Begin(allReduce(100), false)
	live, err := observe.AskLive(ctx, dir)
	if err != nil || len(live) != 1 || live[0].Err != nil {
		t.Fatalf("%+v, %v", live, err)
	}
	c := live[0].Live.Comms[0]
	if live[0].Live.Rank != 1 || c.Ops != 1 || c.Bytes != 400 || c.Op != "all_reduce(float32[100], sum)" || c.Seq != 1 ||
		c.At == "" {
		t.Errorf("%+v", c)
	}
	dumps, err := observe.AskDumps(ctx, dir)
	if err != nil || len(dumps) != 1 || dumps[0].Err != nil {
		t.Fatalf("%+v, %v", dumps, err)
	}
	if d, err := observe.ReadFile(dumps[0].Dump, 0); err != nil || len(d.Entries) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	var heap bytes.Buffer
	if err := observe.Profile(ctx, &heap, dir, 1, "heap", 0); err != nil || heap.Len() < 100 {
		t.Errorf("a profile of %d bytes, %v", heap.Len(), err)
	}
	for name, rank := range map[string]int{"no-such": 1, "heap": 0} {
		if err := observe.Profile(ctx, &heap, dir, rank, name, 0); err == nil {
			t.Errorf("rank %d has a profile %s", rank, name)
		}
	}
	r.End(id, allReduce(100), errors.New("no matter"))
	r.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, "*.sock")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func allReduce(n int) *backend.Op {
	x := tensor.Of(make([]float32, n))
	return &backend.Op{Kind: backend.AllReduce, In: x, Out: x, Reduce: backend.Reduction{Kind: backend.SumKind}}
}
