package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/chorus-comms/chorus/observe/record"
)

// TestTrace reads a trace of two ranks by the Trace Event Format of the Catapult project: an object with traceEvents.
// Each of them has name, ph, ts, pid and tid; complete ones (X) have a dur, instants (i) a scope, metadata (M) a name
// in args.
func TestTrace(t *testing.T) {
	const start = 1_700_000_000_000_000_000
	at := func(us float64) *int64 {
		ns := start + int64(us*1000)
		return &ns
	}
	entry := func(comm int, op string, status record.Status, created float64, started, completed *int64) Entry {
		return Entry{Created: *at(created), Started: started, Completed: completed, Seq: 7, InSizes: [][]int{{3}},
			OutSizes: [][]int{{3}},
			Frames:   []Frame{{Name: "main.main", File: "train.go", Line: 12}}, Chorus: Detail{Comm: comm, Op: op,
				Status: status.String(), DType: "float32"}}
	}
	comms := []CommState{{Name: "world"}, {Name: `"odd" <name>`}}
	dumps := []*Dump{
		{Chorus: Header{Rank: 0, Host: "a", Time: *at(900), Comms: comms}, Entries: []Entry{
			entry(0, "all_reduce", record.Done, 100, at(100.25), at(140.5)),
			entry(1, "barrier", record.Done, 150, at(150), at(150)), // shorter than the clock can tell
			entry(0, "broadcast", record.Done, 160, nil, at(170)),
			entry(0, "send", record.Pending, 200, at(210), nil),
			// Ends that weren't timed: of the first, as long as the next like it; of the second, until that begins; of the last,
			// nothing is known.
			entry(1, "gather", record.Done, 300, at(300), nil),
			entry(1, "gather", record.Done, 320, at(320), nil),
			entry(1, "gather", record.Done, 330, at(330), at(345)),
			entry(1, "recv", record.Done, 400, at(400), nil),
		}},
		{Chorus: Header{Rank: 3, Host: "b", Time: *at(50), Comms: comms[:1]}, Entries: []Entry{
			entry(0, "all_reduce", record.Pending, 90, at(95), nil), // by a clock that is ahead of the dump's
		}},
	}
	var b bytes.Buffer
	if err := WriteTrace(&b, dumps); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		Unit   string `json:"displayTimeUnit"`
		Events []struct {
			Name  *string
			Phase *string `json:"ph"`
			Pid   *int
			Tid   *int
			Time  *float64 `json:"ts"`
			Dur   *float64
			Scope *string `json:"s"`
			Args  map[string]any
		} `json:"traceEvents"`
	}
	strict := json.NewDecoder(&b)
	strict.DisallowUnknownFields()
	if err := strict.Decode(&trace); err != nil || trace.Unit != "ns" {
		t.Fatalf("unit %q, %v", trace.Unit, err)
	}
	names, got := map[string]string{}, map[string]string{}
	for i, e := range trace.Events {
		if e.Name == nil || e.Phase == nil || e.Pid == nil || e.Tid == nil || e.Time == nil || *e.Time < 0 {
			t.Fatalf("event %d lacks what each must have: %+v", i, e)
		}
		key := fmt.Sprintf("%s %d/%d", *e.Name, *e.Pid, *e.Tid)
		switch *e.Phase {
		case "M":
			names[key], _ = e.Args["name"].(string)
		case "X":
			if e.Dur == nil || e.Scope != nil || e.Args["at"] != "train.go:12 (main.main)" || e.Args["seq"] != 7.0 {
				t.Fatalf("event %d: %+v", i, e)
			}
			if e.Args["estimated"] == true {
				key += " estimated " + fmt.Sprint(*e.Time)
			}
			got[key] = fmt.Sprintf("%v for %v, queued %v", *e.Time, *e.Dur, e.Args["queued_us"])
		default:
			t.Errorf("event %d is of phase %q", i, *e.Phase)
		}
	}
	// The first operation of all was called at 90 us.
	if want := map[string]string{
		"all_reduce 0/0": "10.25 for 40.25, queued 0.25", "barrier 0/1": "60 for 0, queued 0",
		"broadcast 0/0": "70 for 10, queued 0",
		"send 0/0":      "120 for 690, queued 10", "gather 0/1 estimated 210": "210 for 15, queued 0",
		"gather 0/1 estimated 230": "230 for 10, queued 0", "gather 0/1": "240 for 15, queued 0",
		"recv 0/1 estimated 310": "310 for 0, queued 0", "all_reduce 3/0": "5 for 0, queued 5",
	}; !maps.Equal(got, want) {
		t.Errorf("operations %v\nwant %v", got, want)
	}
	if want := map[string]string{"process_name 0/0": "rank 0 on a", "thread_name 0/0": "world",
		"thread_name 0/1":  `"odd" <name>`,
		"process_name 3/0": "rank 3 on b", "thread_name 3/0": "world"}; !maps.Equal(names, want) {
		t.Errorf("names %v\nwant %v", names, want)
	}
	b.Reset()
	if err := WriteTrace(&b, nil); err != nil || !json.Valid(b.Bytes()) {
		t.Errorf("of no dumps: %q, %v", b.String(), err)
	}
}
