package capi

import (
	"os"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/internal/dl"
)

// Drivers that call shared libraries without cgo can live in this library, which is made with it: both ways into C, in
// one process, from many goroutines at once.
func TestWithoutCgoBesideIt(t *testing.T) {
	l, err := dl.Source{Name: "libc", Candidates: []string{"libc.so.6", "libc.so"}}.Open()
	if err != nil {
		t.Skip("left out: ", err)
	}
	var f struct {
		Getpid dl.Func              `dl:"getpid"`
		Atoi   func(s string) int32 `dl:"atoi"`
	}
	if _, err := l.Resolve(&f); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				if got := f.Getpid.Call(); int(got) != os.Getpid() {
					t.Errorf("getpid() = %d", got)
					return
				}
				if i%100 == 0 && f.Atoi("1234") != 1234 {
					t.Error("atoi is wrong")
				}
			}
		})
	}
	wg.Wait()
}
