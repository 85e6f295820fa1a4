package traces

import (
	"errors"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device/driver"
)

// fake is a command whose end and times the test decides on.
type fake struct {
	over, failed, known, freed bool
	asked                      int
	start, end                 time.Time
}

func (f *fake) Over() (bool, bool) { f.asked++; return f.over, f.failed }

func (f *fake) Span() (time.Time, time.Time, bool) { return f.start, f.end, f.known }

func (f *fake) Free() { f.freed = true }

func TestTrace(t *testing.T) {
	var slot Slot
	if _, err := slot.Stop("x"); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("stopping what wasn't started: %v", err)
	}
	tr, err := slot.Start("x")
	if err != nil || slot.Load() != tr {
		t.Fatal(err)
	}
	if _, err := slot.Start("x"); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("starting twice: %v", err)
	}
	at := func(ms int) time.Time { return tr.Begin.Add(time.Hour + time.Duration(ms)*time.Millisecond) }
	commands := []*fake{
		{over: true, known: true, start: at(30), end: at(40)},
		{over: true, known: true, start: at(10), end: at(20), failed: true},
		{over: false},
		{over: true, known: false},
	}
	for i, f := range commands {
		w := tr.Call("call", driver.Activity{Kind: driver.ActivityCopy, Name: "copy", Bytes: i + 1}, at(0))
		tr.Command(w, f)
	}
	w := tr.Call("call", driver.Activity{Kind: driver.ActivityHost, Name: "mine"}, at(0))
	w.Ran(time.Now(), false)
	list, err := slot.Stop("x")
	if err != nil || slot.Load() != nil {
		t.Fatal(err)
	}
	var names []string
	for i, a := range list {
		if i > 0 && a.Start.Before(list[i-1].Start) {
			t.Errorf("%v begins before the one before", a)
		}
		if a.Kind == driver.ActivityCopy {
			names = append(names, a.Name)
			if want := [...]int{2, 1}; a.Start.After(at(5)) && a.Bytes != want[len(names)-2] {
				t.Errorf("%d bytes as number %d", a.Bytes, len(names))
			}
			if a.Failed != (a.Bytes == 2) || a.Bytes == 4 && !a.Start.Equal(at(0)) {
				t.Errorf("%+v", a)
			}
		}
	}
	if len(names) != 3 || len(list) != 5+3+1 || !commands[2].freed {
		t.Errorf("%d copies, %d activities, freed: %t", len(names), len(list), commands[2].freed)
	}
	late := &fake{}
	tr.Command(w, late)
	if w.Ran(time.Now(), false); !late.freed || len(tr.list) != len(list) {
		t.Error("a trace that is over keeps on")
	}
	var none Work
	none.Ran(time.Now(), false)
}

// A long trace asks for the ends of commands on its way, so that it keeps few of them.
func TestManyCommands(t *testing.T) {
	var slot Slot
	tr, err := slot.Start("x")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 * mostGoing {
		f := &fake{over: true}
		tr.Command(tr.Call("call", driver.Activity{}, tr.Begin), f)
		if len(tr.going) > mostGoing {
			t.Fatalf("%d commands are going", len(tr.going))
		}
	}
	if list, _ := slot.Stop("x"); len(list) != 20*mostGoing {
		t.Errorf("%d activities", len(list))
	}
}

func TestIDs(t *testing.T) {
	var x IDs
	x.Push(7)
	x.Push(8)
	if x.Innermost() != 8 {
		t.Errorf("the innermost is %d", x.Innermost())
	}
	for _, want := range []uint64{8, 7} {
		if id, err := x.Pop("x", 0); id != want || err != nil {
			t.Errorf("popped %d, %v", id, err)
		}
	}
	if _, err := x.Pop("x", 0); !errors.Is(err, driver.ErrInvalidArgument) || x.Innermost() != 0 {
		t.Errorf("popping nothing: %v", err)
	}
}
