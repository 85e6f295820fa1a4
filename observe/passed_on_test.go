package observe

import (
	"slices"
	"testing"

	"github.com/chorus-comms/chorus/observe/record"
)

// message is what a dump says of a message that a rank has called at 1 s with a peer, and that ended two seconds later.
func message(op string, peer int, status record.Status) Entry {
	ended := int64(3e9)
	return Entry{Created: 1e9, Completed: &ended, PointToPoint: true, InSizes: [][]int{{6}}, OutSizes: [][]int{{6}},
		Chorus: Detail{Op: op, Status: status.String(), DType: "int32", Peer: &peer}}
}

// then is a message that the program has called after those.
func then(e Entry) Entry {
	ended := int64(4e9)
	e.Created, e.Completed = 3e9, &ended
	return e
}

// dumpOf is the dump of a rank whose communicator was broken by a rank, at a time in nanoseconds since its start.
func dumpOf(rank, size int, kind record.Status, by int, at int64, entries ...Entry) *Dump {
	members := make([]int, size)
	for r := range members {
		members[r] = r
	}
	return &Dump{Entries: entries, Chorus: Header{Rank: rank, Size: size, Time: 3e9 + at, Comms: []CommState{{Name: "world",
		Rank: rank, Members: members, Failure: &Failure{Kind: kind.String(), Message: "why", Time: 3e9 + at, Peer: &by}}}}}
}

// TestPassedOn has a rank give up because its time was over, after which it's not to blame: the rank that it waited for
// is, or none where the dumps don't tell which that is. It makes no difference which rank learns of it first by its
// clock, or whether the message that was late isn't the last of its batch.
func TestPassedOn(t *testing.T) {
	const timedOut, aborted, done = record.TimedOut, record.Aborted, record.Done
	sent, received := message("send", 0, timedOut), message("recv", 2, done)
	received3 := message("recv", 3, done)
	asynchronous := message("recv", 0, timedOut)
	asynchronous.Chorus.Async = true
	for name, x := range map[string]struct {
		dumps []*Dump
		kind  Kind
		ranks []int
	}{
		"the aborter is the first": {[]*Dump{dumpOf(3, 4, timedOut, 3, 0, sent, received), dumpOf(1, 4, aborted, 3, 5),
			dumpOf(2, 4, aborted, 3, 5)}, KindNoDump, []int{0}},
		"another's clock is the first": {[]*Dump{dumpOf(3, 4, timedOut, 3, 5, sent, received), dumpOf(1, 4, aborted, 3, 0),
			dumpOf(2, 4, aborted, 3, 0)}, KindNoDump, []int{0}},
		"the other one of a batch is late": {[]*Dump{dumpOf(3, 4, timedOut, 3, 0, received, sent), dumpOf(1, 4, aborted, 3, 5),
			dumpOf(2, 4, aborted, 3, 5)}, KindNoDump, []int{0}},
		"dumps made long after each other": {[]*Dump{dumpOf(3, 4, timedOut, 3, 0, sent, received),
			dumpOf(1, 4, aborted, 3, 60e9), dumpOf(2, 4, aborted, 3, 5)}, KindNoDump, []int{0}},
		"a receive from any rank is the first": {[]*Dump{dumpOf(2, 4, timedOut, 2, 0, received3,
			then(message("recv", -1, timedOut))), dumpOf(1, 4, aborted, 2, 5), dumpOf(3, 4, aborted, 2, 5, sent, received)},
			KindNoDump, []int{0}},
		"a receive from any rank is all": {[]*Dump{dumpOf(2, 4, timedOut, 2, 0, message("recv", -1, timedOut)),
			dumpOf(1, 4, aborted, 2, 5), dumpOf(3, 4, aborted, 2, 5)}, KindUnknown, []int{}},
		"a rank that waits for that one": {[]*Dump{dumpOf(2, 4, timedOut, 2, 0, message("recv", -1, timedOut)),
			dumpOf(1, 4, aborted, 2, 5, message("recv", 2, timedOut)), dumpOf(3, 4, aborted, 2, 5)}, KindUnknown, []int{}},
		"it went on, and gave up for itself": {[]*Dump{dumpOf(3, 4, aborted, 3, 0, sent, received,
			then(message("recv", 2, done))), dumpOf(1, 4, aborted, 3, 5), dumpOf(2, 4, aborted, 3, 5)}, KindAborted, []int{3}},
		"an asynchronous message is late": {[]*Dump{dumpOf(3, 4, timedOut, 3, 0, asynchronous), dumpOf(1, 4, aborted, 3, 5),
			dumpOf(2, 4, aborted, 3, 5)}, KindNoDump, []int{0}},
		"it left no dump": {[]*Dump{dumpOf(1, 4, aborted, 3, 5), dumpOf(2, 4, aborted, 3, 5)}, KindAborted, []int{3}},
	} {
		r := Explain(x.dumps)
		if len(r.Findings) != 1 || r.Findings[0].Kind != x.kind || !slices.Equal(r.Findings[0].Ranks, x.ranks) {
			t.Errorf("%s: want %s, ranks %v:\n%v", name, x.kind, x.ranks, r)
		}
	}
}

// TestUnknownTwice has two communicators fail, of which no dump tells why.
func TestUnknownTwice(t *testing.T) {
	var dumps []*Dump
	for rank := range 3 {
		d := dumpOf(rank, 3, record.Aborted, 2, 5)
		other := d.Chorus.Comms[0]
		by := 1
		other.Name, other.Failure = "other", &Failure{Kind: record.Aborted.String(), Message: "why", Time: 3e9, Peer: &by}
		switch rank {
		case 1:
			other.Failure.Kind = record.TimedOut.String()
		case 2:
			*d = *dumpOf(2, 3, record.TimedOut, 2, 0, message("recv", -1, record.TimedOut))
		}
		d.Chorus.Comms = append(d.Chorus.Comms, other)
		dumps = append(dumps, d)
	}
	r := Explain(dumps)
	if len(r.Findings) == 0 || slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Kind == KindUnknown && len(f.Ranks) > 0
	}) {
		t.Errorf("%v", r)
	}
}
