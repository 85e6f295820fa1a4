package comm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/tensor"
)

func init() {
	for name, m := range misdeeds {
		programs["detect "+name] = func() error { return detectRank(m) }
	}
}

// culprit is the rank that does wrong, of three.
const culprit = 1

// blame is what a rank that does nothing wrong says of an error.
type blame struct {
	Kind   string // of the error
	Comm   string
	Op     string
	Seq    uint64
	Peer   int // lost rank; -1 if that's not what happened
	A, B   int // ranks that disagree
	Text   string
	Again  string // kind of error of the next call
	Broken bool
	backend.Attendance
}

func kindOf(err error) string {
	for kind, target := range map[string]error{"timeout": comm.ErrTimeout, "mismatch": comm.ErrMismatch,
		"lost":    comm.ErrPeerLost,
		"aborted": comm.ErrAborted, "invalid": comm.ErrInvalidArgument, "internal": comm.ErrInternal} {
		if errors.Is(err, target) {
			return kind
		}
	}
	return fmt.Sprintf("%T", err)
}

func blameOf(c *comm.Comm, err error) blame {
	b := blame{Kind: kindOf(err), Peer: -1, Text: err.Error()}
	if w := interface{ At() comm.Where }(nil); errors.As(err, &w) {
		b.Comm, b.Op, b.Seq = w.At().Comm, w.At().Op, w.At().Seq
	}
	if a := interface{ Attended() *backend.Attendance }(nil); errors.As(err, &a) {
		b.Attendance = *a.Attended()
	}
	var lost *comm.PeerLostError
	if errors.As(err, &lost) {
		b.Peer = lost.Peer
	}
	var mm *comm.MismatchError
	if errors.As(err, &mm) {
		b.A, b.B = mm.RankA, mm.RankB
	}
	if c != nil {
		b.Again, b.Broken = kindOf(c.Barrier(context.Background())), c.Err() != nil
	}
	return b
}

// A misdeed is what the culprit does instead of an operation that the others call.
type misdeed struct {
	others, culprit func(ctx context.Context, c, part *comm.Comm) error
}

var misdeeds = func() map[string]misdeed {
	type f = func(ctx context.Context, c, part *comm.Comm) error
	short := comm.Timeout(700 * time.Millisecond)
	reduce := func(ctx context.Context, c, _ *comm.Comm) error { return c.AllReduce(ctx, zeros(8), comm.Sum, short) }
	bcast := func(root int) f {
		return func(ctx context.Context, c, _ *comm.Comm) error { return c.Broadcast(ctx, zeros(8), root, short) }
	}
	signal := func(s syscall.Signal) f {
		return func(ctx context.Context, _, _ *comm.Comm) error {
			err := syscall.Kill(os.Getpid(), s)
			<-ctx.Done() // a process is stopped some time after it's told
			return err
		}
	}
	patient := func(ctx context.Context, c, _ *comm.Comm) error { return c.AllReduce(ctx, zeros(8), comm.Sum) }
	queue := func(kinds ...f) f { // several operations under way at once
		return func(ctx context.Context, c, part *comm.Comm) error {
			var all error
			for _, k := range kinds {
				all = errors.Join(all, k(ctx, c, part))
			}
			return all
		}
	}
	return map[string]misdeed{
		"killed":  {patient, signal(syscall.SIGKILL)},
		"stopped": {reduce, signal(syscall.SIGSTOP)},
		"stopped inside": { // where the ranks read and write each other's memory
			func(ctx context.Context, c, _ *comm.Comm) error { return mapped(ctx, c, short, false) },
			func(ctx context.Context, c, _ *comm.Comm) error { return mapped(ctx, c, short, true) },
		},
		"missing":   {reduce, func(_ context.Context, c, _ *comm.Comm) error { <-c.Broken(); return c.Err() }},
		"operation": {reduce, func(ctx context.Context, c, _ *comm.Comm) error { return c.Barrier(ctx) }},
		"dtype": {reduce, func(ctx context.Context, c, _ *comm.Comm) error {
			return c.AllReduce(ctx, tensor.Of(make([]float64, 8)), comm.Sum)
		}},
		"count": {reduce,
			func(ctx context.Context, c, _ *comm.Comm) error { return c.AllReduce(ctx, zeros(9), comm.Sum) }},
		"reduction": {reduce,
			func(ctx context.Context, c, _ *comm.Comm) error { return c.AllReduce(ctx, zeros(8), comm.Max) }},
		"root":    {bcast(0), bcast(2)},
		"order":   {queue(reduce, bcast(0)), queue(bcast(0), reduce)},
		"crossed": {reduce, func(ctx context.Context, _, part *comm.Comm) error { return part.Barrier(ctx) }},
		"leaves":  {patient, func(ctx context.Context, c, _ *comm.Comm) error { return c.Finalize(ctx) }},
	}
}()

// mapped reduces memory that all ranks can map, again and again until that fails. One that is to stop does so at some
// moment of the operations.
func mapped(ctx context.Context, c *comm.Comm, limit comm.Option, stop bool) error {
	x, err := c.Zeros(dtype.Float32, 4<<20)
	for i := 0; err == nil; i++ {
		if i == 3 && stop {
			time.AfterFunc(2*time.Millisecond, func() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) })
		}
		err = c.AllReduce(ctx, x, comm.Max, limit)
	}
	return err
}

// detectRank is the program of one rank: two communicators, some operations, and then what the test asks for.
func detectRank(m misdeed) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var opts []comm.NewOption
	if os.Getenv("CHORUS_TEST_FABRIC") == "tcp" {
		// The operation's time is over before.
		opts = append(opts, comm.WithHints(map[string]string{"fabric.heartbeat": "1m"}))
	}
	c, err := join(ctx, opts...)
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	part, err := c.Split(ctx, []int{0, 1, 2}, comm.SplitName("part"))
	if err != nil {
		return err
	}
	defer part.Finalize(ctx)
	for _, n := range []int{8, 3000} { // one that is slow may still be in it when the others have failed
		err = errors.Join(err, c.AllReduce(ctx, zeros(n), comm.Sum))
	}
	if c.Rank() == culprit {
		m.culprit(ctx, c, part)
		return nil
	}
	if err == nil {
		err = m.others(ctx, c, part)
	}
	for err == nil { // a rank that waits for no other learns at one of the next calls
		err = c.Barrier(ctx)
	}
	out, err := json.Marshal(blameOf(c, err))
	fmt.Printf("blame %s\n", out)
	return err
}

// TestDetection has one of three processes do wrong: the error of each of the others says who, in what, and who was
// there.
func TestDetection(t *testing.T) {
	for _, x := range []struct {
		misdeed string
		kind    string
		missing bool // the error says that the culprit is
		say     []string
	}{
		{"killed", "lost", false, nil},
		{"stopped", "timeout", true, nil},
		{"stopped inside", "timeout", false, nil},
		{"missing", "timeout", true, []string{"rank 1 is elsewhere, after all_reduce(float32[3000], sum) #3 of",
			"missing_detect_test.go:"}},
		{"crossed", "timeout", true, []string{`rank 1 is in barrier #1 of "part", at comm/missing_detect_test.go:`}},
		{"leaves", "lost", false, []string{"finalized"}},
		{"operation", "mismatch", false, []string{"barrier"}},
		{"dtype", "mismatch", false, []string{"float64"}},
		{"count", "mismatch", false, []string{"[9]"}},
		{"reduction", "mismatch", false, []string{"max"}},
		{"root", "mismatch", false, []string{"root 2"}},
		{"order", "mismatch", false, []string{"all_reduce", "broadcast"}},
	} {
		for _, fabric := range []string{"shm", "tcp"} {
			t.Run(x.misdeed+"/"+fabric, func(t *testing.T) {
				t.Parallel()
				if fabric == "tcp" && strings.HasPrefix(x.misdeed, "stopped") {
					testutil.SkipIfShort(t) // six seconds, in which nothing is done
				}
				cmds, outs := start(t, "detect "+x.misdeed, fabric, 3)
				for r := range cmds {
					if r == culprit {
						continue
					}
					cmds[r].Wait()
					var b blame
					_, text, _ := strings.Cut(outs[r].String(), "blame ")
					text, _, _ = strings.Cut(text, "\n")
					if err := json.Unmarshal([]byte(text), &b); err != nil {
						t.Fatalf("rank %d says nothing of an error: %v\n%s", r, err, outs[r])
					}
					t.Log(b.Text)
					complain := func(format string, args ...any) {
						t.Errorf("rank %d: %s: %+v", r, fmt.Sprintf(format, args...), b)
					}
					if b.Kind != x.kind || b.Again != x.kind || !b.Broken {
						complain("it gives %q and then %q, want %q", b.Kind, b.Again, x.kind)
					}
					if b.Comm == "" || b.Op == "" || b.Seq != 0 && b.Seq < 3 {
						complain("it doesn't say where")
					}
					switch {
					case x.kind == "lost" && b.Peer != culprit:
						complain("rank %d is lost", culprit)
					case x.kind == "lost" && b.Seq != 0 && !slices.Contains(slices.Concat(b.Missing, b.Unknown), culprit):
						complain("rank %d is missing", culprit)
					case x.kind == "mismatch" && b.A != culprit && b.B != culprit:
						complain("rank %d calls something else", culprit)
					case x.missing && (!slices.Equal(b.Missing, []int{culprit}) && !slices.Equal(b.Unknown, []int{culprit}) ||
						b.Elapsed < 100*time.Millisecond):
						complain("rank %d is missing", culprit)
					case (len(b.Arrived) > 0 || x.kind == "timeout") && !slices.ContainsFunc(b.Arrived,
						func(a int) bool { return a != culprit }):
						complain("ranks other than the culprit were there")
					}
					if x.misdeed == "stopped inside" && !slices.Contains(slices.Concat(b.Missing, b.Unknown), culprit) {
						complain("rank %d is not named", culprit)
					}
					for _, say := range x.say {
						if !strings.Contains(b.Text, say) {
							complain("it doesn't say %s", say)
						}
					}
				}
			})
		}
	}
}
