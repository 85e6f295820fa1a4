package nccl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/dtype"
)

const (
	// asyncPause is how often the library is asked for errors of its own.
	asyncPause = 50 * time.Millisecond
	// answerTime bounds how long a rank waits for what the others say of an operation that is overdue.
	answerTime = time.Second
	// tellTime bounds how long the report of a failure takes.
	tellTime = 5 * time.Second
)

// The keys of a communicator's store. The first failure is the last: a communicator that is broken stays so.
const (
	alarmKey   = "alarm"   // the rank that has found it, an alarm
	failureKey = "failure" // what it is, a base.Failure
	answerKey  = "at/"     // of a rank, an answer
	opKey      = "op/"     // of a collective and a rank, what that calls, if they compare
)

// alarm is how it becomes known that something has failed.
type alarm struct {
	By  int    `json:"by"`
	Seq uint64 `json:"s,omitempty"` // the collective that is overdue; 0: the failure comes without answers
	Run bool   `json:"r,omitempty"` // of a graph that has captured it
}

// answer is how far a rank is.
type answer struct {
	Seq     uint64 `json:"s"`           // collectives that it has enqueued
	Running bool   `json:"r,omitempty"` // a run of its graph is in it
	Op      string `json:"o"`           // the one that the alarm is about
	Refused string `json:"f,omitempty"` // why it has refused to enqueue that
	Doing   string `json:"d,omitempty"` // what it does instead
}

// recentOps is how many collectives back a rank can tell what they were.
const recentOps = 1024

// description is what ranks compare of a collective.
type description struct {
	kind   backend.Kind
	dt     dtype.DType
	reduce backend.ReduceKind
	root   int32
	seq    uint64
	count  uint64
}

func describe(op *backend.Op, n int) description {
	row, first := op.Kind.Operation(), op.First()
	b := description{kind: op.Kind, seq: op.Seq, root: -1}
	if first == nil {
		return b
	}
	b.dt = first.DType()
	if !row.Uneven && op.Kind != backend.Gather && op.Kind != backend.Scatter { // whose blocks may differ in size
		b.count = uint64(first.NumEl())
		if op.In != nil && row.In == backend.Whole {
			b.count /= uint64(n)
		}
	}
	if row.Reduces {
		b.reduce = op.Reduce.Kind
	}
	if row.Root {
		b.root = int32(op.Root)
	}
	return b
}

func (b description) String() string {
	row := b.kind.Operation()
	if b.dt == dtype.Invalid {
		return row.Name
	}
	s := fmt.Sprintf("%s(%v", row.Name, b.dt)
	if !row.Uneven {
		s += fmt.Sprintf("[%d]", b.count)
	}
	if row.Reduces {
		s += fmt.Sprintf(", %v", b.reduce)
	}
	if row.Root {
		s += fmt.Sprintf(", root %d", b.root)
	}
	return s + ")"
}

// record is what a rank has enqueued.
type record struct {
	sync.Mutex
	seq     uint64
	recent  [recentOps]description
	runs    map[uint64]captured // of those that graphs have captured, if their runs are watched
	refusal base.Refusal
	doing   func() string
}

// captured is a collective that a graph has.
type captured struct {
	what    description
	running func() bool // a run of the graph is in it
}

// what describes an operation that this rank has enqueued.
func (r *rank) what(op *backend.Op) string {
	r.record.Lock()
	defer r.record.Unlock()
	if run, ok := r.record.runs[op.Seq]; ok && op.Running != nil {
		return run.what.String()
	}
	return describe(op, r.size).String()
}

// note numbers a collective.
func (r *rank) note(op *backend.Op) description {
	r.record.Lock()
	defer r.record.Unlock()
	r.record.seq++
	op.Seq = r.record.seq
	b := &r.record.recent[op.Seq%recentOps]
	*b = describe(op, r.size)
	if op.Running != nil {
		if r.record.runs == nil {
			r.record.runs = map[uint64]captured{}
		}
		r.record.runs[op.Seq] = captured{*b, op.Running}
	}
	return *b
}

// compare waits until all ranks have said what they call, and breaks the communicator if one calls something else, or
// nothing before ctx ends.
func (r *rank) compare(ctx context.Context, op *backend.Op, mine string) error {
	at, begin := r.Of(op), time.Now()
	key := func(seq uint64, q int) string { return fmt.Sprint(opKey, seq, "/", q) }
	err := r.st.Set(ctx, key(op.Seq, r.rank), []byte(mine))
	if err == nil && op.Seq > 2 { // a rank that is in the one before has read it
		_, err = r.st.Delete(ctx, key(op.Seq-2, r.rank))
	}
	var keys []string
	for q := range r.size {
		keys = append(keys, key(op.Seq, q))
	}
	if err == nil {
		err = r.st.Wait(ctx, keys...)
	}
	late := err != nil && ctx.Err() != nil
	a := backend.Attendance{Elapsed: time.Since(begin)}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	for q := range r.size {
		var there bool
		var theirs []byte
		if late {
			there, _ = r.st.Check(ctx, keys[q]) // without the store no rank is known to have come
		} else if err == nil {
			theirs, err = r.st.Get(ctx, keys[q])
		}
		switch {
		case late && there:
			a.Arrived = append(a.Arrived, q)
		case late:
			a.Missing = append(a.Missing, q)
		case err == nil && string(theirs) != mine:
			r.Fail(base.MismatchOf(at, q, mine, string(theirs)))
			return r.Err(at)
		}
	}
	switch {
	case late:
		r.Fail(&backend.TimeoutError{Where: at, Attendance: a})
	case err != nil && r.rank > 0:
		r.Fail(&backend.PeerLostError{Where: at, Peer: 0, Cause: "the store that it served is gone: " + err.Error()})
	case err != nil:
		r.Fail(&backend.InternalError{Where: at, Err: err})
	default:
		return nil
	}
	return r.Err(at)
}

// answer says how far this is, and what collective seq was, if it has come to that and that wasn't long ago.
func (rec *record) answer(al alarm) answer {
	seq := al.Seq
	rec.Lock()
	a := answer{Seq: rec.seq}
	if run, ok := rec.runs[seq]; al.Run && ok {
		a.Running, a.Op = run.running(), run.what.String()
	} else if b := rec.recent[seq%recentOps]; seq > 0 && b.seq == seq {
		a.Op = b.String()
	}
	if refused, why := rec.refusal.Get(); a.Seq < seq && refused == a.Seq+1 {
		a.Refused = why
	}
	doing := rec.doing
	rec.Unlock()
	if (a.Seq < seq || al.Run && !a.Running) && doing != nil {
		a.Doing = doing()
	}
	return a
}

// watch is the goroutine of a communicator that notices events outside of calls: the library's own errors and other
// ranks' alarms. When the communicator is broken it aborts the library.
func (r *rank) watch(ctx context.Context) {
	defer close(r.ended)
	tick := time.NewTicker(asyncPause)
	defer tick.Stop()
	for {
		select {
		case <-r.Broken():
			if _, healthy := errors.AsType[*backend.FinalizedError](r.Cause()); !healthy {
				if f, ok := r.beforeStop.Load().(func()); ok {
					f()
				}
				r.Reporting.Within(answerTime) // before the others' calls fail because this rank stops
				r.mu.Lock()
				r.stopLibrary()
				r.mu.Unlock()
			}
			return
		case <-tick.C:
			r.lookAt(ctx)
		}
	}
}

// lookAt asks the library for errors.
func (r *rank) lookAt(ctx context.Context) {
	if !r.mu.TryLock() {
		return // the goroutine that calls the library sees them
	}
	result := new(abi.Result)
	var err error
	if r.c != 0 {
		if err = r.lib.failed("ncclCommGetAsyncError", r.lib.GetAsyncError(r.c, result), r.c); err == nil {
			err = r.lib.failed("the communicator", *result, r.c)
		}
	}
	r.mu.Unlock()
	if err == nil {
		return
	}
	if *result == abi.RemoteError {
		r.lost(err)
		return
	}
	r.failUnlessReported(&backend.InternalError{Where: r.Where(), Err: err})
}

// failUnlessReported breaks the communicator with what the library has failed with here, unless another rank has raised
// an alarm before. That rank's failure is the cause then: a rank reports its failure before it stops its part of the
// library, which makes calls of the others fail.
func (r *rank) failUnlessReported(cause error) {
	if r.st != nil && !r.Raised() {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		first, err := r.raise(ctx, alarm{By: r.rank})
		cancel()
		if err == nil && first != r.rank {
			ctx, cancel := context.WithTimeout(context.Background(), answerTime+tellTime)
			defer cancel()
			r.takeReport(ctx, first)
			return
		}
	}
	r.Fail(cause)
}

// takeReport breaks the communicator with the failure that rank by reports, which has raised the alarm.
func (r *rank) takeReport(ctx context.Context, by int) {
	var f base.Failure
	text, err := await(ctx, r.st, failureKey)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil || !f.Known() {
		r.Break(&backend.PeerLostError{Where: r.Where(), Peer: by,
			Cause: "it has raised an alarm, and doesn't say what has failed"})
		return
	}
	r.Break(f.Err(r.Where()))
}

// atAlarm is called by a rank that has noticed another one's alarm, before it answers; for tests.
var atAlarm atomic.Pointer[func(rank int)]

// lost finds out which rank the library has lost: one that doesn't answer.
func (r *rank) lost(err error) {
	a, _ := r.ask(alarm{By: r.rank})
	peer := -1
	if len(a.Unknown) > 0 {
		peer = a.Unknown[0]
	}
	r.Fail(&backend.PeerLostError{Where: r.Where(), Peer: peer, Cause: err.Error()})
}

// listen waits for an alarm, answers it, and then takes the failure for this rank's, too.
func (r *rank) listen(ctx context.Context) {
	var al alarm
	text, err := await(ctx, r.st, alarmKey)
	if err != nil || json.Unmarshal(text, &al) != nil || al.By == r.rank {
		return // without the store there are no reports
	}
	if f := atAlarm.Load(); f != nil {
		(*f)(r.rank)
	}
	a := r.record.answer(al)
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	if text, err = json.Marshal(a); err == nil {
		_ = r.st.Set(ctx, fmt.Sprint(answerKey, r.rank), text) // without the store there is no report either
	}
	r.takeReport(ctx, al.By)
}

// raise makes this rank the one that says what has failed, unless another one has raised an alarm. It returns the rank
// that has.
func (r *rank) raise(ctx context.Context, al alarm) (by int, err error) {
	text, err := json.Marshal(al)
	if err != nil {
		return -1, err
	}
	stands, err := r.st.CompareSet(ctx, alarmKey, nil, text)
	var first alarm
	if err == nil {
		err = json.Unmarshal(stands, &first)
	}
	return first.By, err
}

// ask raises an alarm and collects the answers. ops are those of the ranks that have arrived. Of a failure that
// another rank tells of, which breaks the communicator, the attendance is empty; of a store that is gone it has rank 0
// alone, which served it.
func (r *rank) ask(al alarm) (a backend.Attendance, ops map[int]string) {
	ops = map[int]string{}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	if r.st == nil {
		return a, ops
	}
	if first, err := r.raise(ctx, al); err != nil {
		a.Unknown = []int{0}
		return a, ops
	} else if first != r.rank { // the rank that has raised it waits for answers, and then reports
		select {
		case <-r.Broken():
		case <-time.After(answerTime + tellTime):
		}
		return a, ops
	}
	answers := make([]*answer, r.size)
	done := make(chan int)
	for q := range r.size {
		go func() {
			if q != r.rank {
				var got answer
				if text, err := await(ctx, r.st, fmt.Sprint(answerKey, q)); err == nil && json.Unmarshal(text, &got) == nil {
					answers[q] = &got
				}
			}
			done <- q
		}()
	}
	for range r.size {
		<-done
	}
	for q, got := range answers {
		switch {
		case q == r.rank:
			a.Arrived = append(a.Arrived, q)
		case got == nil:
			a.Unknown = append(a.Unknown, q)
		case got.Seq < al.Seq || al.Run && !got.Running:
			a.Missing = append(a.Missing, q)
			base.Note(&a.Refused, q, got.Refused)
			base.Note(&a.Doing, q, got.Doing)
		default:
			a.Arrived = append(a.Arrived, q)
			ops[q] = got.Op
		}
	}
	return a, ops
}

// BeforeStop implements backend.Enqueuer.
func (r *rank) BeforeStop(f func()) { r.beforeStop.Store(f) }

// Overdue implements backend.Enqueuer.
func (r *rank) Overdue(at backend.Where, op *backend.Op, elapsed time.Duration) {
	if op.Kind.PointToPoint() {
		r.Fail(&backend.TimeoutError{Where: at, Attendance: backend.Attendance{Elapsed: elapsed, Missing: []int{op.Peer}}})
		return
	}
	a, ops := r.ask(alarm{By: r.rank, Seq: op.Seq, Run: op.Running != nil})
	a.Elapsed = elapsed
	mine := r.what(op)
	for q := range r.size {
		if theirs := ops[q]; theirs != "" && theirs != mine {
			e := base.MismatchOf(at, q, mine, theirs)
			e.Attendance = a
			r.Fail(e)
			return
		}
	}
	r.Fail(&backend.TimeoutError{Where: at, Attendance: a})
}

// tell passes a failure on to the other ranks.
func (r *rank) tell(_ uint64, cause error) {
	if r.st == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellTime)
	defer cancel()
	if first, err := r.raise(ctx, alarm{By: r.rank}); err != nil || first != r.rank {
		return // they have got another one
	}
	f := base.FailureOf(cause, r.rank)
	if text, err := json.Marshal(f); err == nil {
		_ = r.st.Set(ctx, failureKey, text) // a rank that doesn't get it has its own timeout
	}
}
