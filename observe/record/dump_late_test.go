package record_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/record"
)

// TestLate: a message that is late leaves a dump, and a failure leaves a later one in its place.
func TestLate(t *testing.T) {
	dir := t.TempDir()
	r := record.Open(record.Settings{Entries: 8, Dir: dir}, "train", "world", 0, 2)
	defer r.Close()
	read := func() (time int64, failure *record.Failure) {
		t.Helper()
		dumps, err := observe.ReadDir(dir, 0)
		if err != nil || len(dumps) != 1 {
			t.Fatalf("%d dumps, %v", len(dumps), err)
		}
		return dumps[0].Chorus.Time, dumps[0].Chorus.Comms[0].Failure
	}
	r.Late()
	first, failure := read()
	if failure != nil {
		t.Errorf("a message that is late is a failure of the communicator: %+v", failure)
	}
	r.Late()
	if again, _ := read(); again != first {
		t.Error("the second late message has left a dump as well")
	}
	r.Failed(errors.New("it broke"))
	if _, failure := read(); failure == nil {
		t.Error("the dump does not tell of the failure")
	}
	r.Late()
	if _, failure := read(); failure == nil {
		t.Error("a late message's dump is in the place of the failure's")
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*.json")); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}
