package loader

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Kernels that take long are said after two seconds, with a count, then every ten, and at their end. Quick ones aren't.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Progress
		var out strings.Builder
		said := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := out.String(); got != strings.Join(want, "") {
				t.Errorf("said:\n%s", got)
			}
			out.Reset()
		}
		end := p.begin()
		time.Sleep(time.Hour)
		end()
		said() // nowhere
		p.Show(&out)
		for range 3 {
			end := p.begin()
			time.Sleep(600 * time.Millisecond)
			end()
		}
		time.Sleep(time.Minute)
		said()
		var ends []func()
		for range 3 {
			ends = append(ends, p.begin())
		}
		p.begin()()
		time.Sleep(1900 * time.Millisecond)
		said()
		time.Sleep(200 * time.Millisecond)
		said("chorus: compiling kernels: 1 done, 3 under way (CHORUS_KERNEL_PROGRESS=0 turns this line off)\n")
		time.Sleep(11 * time.Second)
		said("chorus: compiling kernels: 1 done, 3 under way\n")
		for _, end := range ends {
			end()
		}
		time.Sleep(time.Minute)
		said("chorus: compiled 4 kernels in 13s\n")
	})
}
