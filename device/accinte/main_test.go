package accinte

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/hostmem"
)

// The tests leave no goroutine, descriptor or mapping behind.
func TestMain(m *testing.M) {
	if run, ok := children[os.Getenv(childVar)]; ok {
		os.Exit(run())
	}
	before := hostmem.ReadStats()
	code := m.Run()
	if code == 0 {
		hostmem.Trim()
		if now := hostmem.ReadStats(); now.Segments != before.Segments || now.Mappings != before.Mappings ||
			now.InUse != before.InUse {
			println("segments, mappings or blocks are left over")
			code = 1
		}
		if n := reserved(); n != 0 {
			println("reserved addresses are left over")
			code = 1
		}
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// reserved counts the mappings of this process that are of an arena's size and without access.
func reserved() (n int) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:chorus") {
			n++
		}
	}
	return n
}
