package record

import (
	"math"
	"runtime"
	"strings"
	"sync"
)

// sites are places in programs of other languages, which have no return addresses of Go. Their numbers, from 1 on, are
// less than any address.
var sites struct {
	sync.Mutex
	all     []Frame
	numbers map[Frame]uint16
}

// Site numbers a place in a program of another language, for [backend.Op.Site]: the same place has the same number, for
// as long as the process lives. It returns 0, no place, when there are 65,535 others.
func Site(f Frame) uint16 {
	sites.Lock()
	defer sites.Unlock()
	n, ok := sites.numbers[f]
	if !ok && len(sites.all) < math.MaxUint16 {
		sites.all = append(sites.all, f)
		n = uint16(len(sites.all))
		if sites.numbers == nil {
			sites.numbers = map[Frame]uint16{}
		}
		sites.numbers[f] = n
	}
	return n
}

// SiteFrame returns the place of a number that Site gave, if it's one.
func SiteFrame(n uintptr) (Frame, bool) {
	sites.Lock()
	defer sites.Unlock()
	if n == 0 || n > uintptr(len(sites.all)) {
		return Frame{}, false
	}
	return sites.all[n-1], true
}

// placer turns return addresses, and the numbers of sites, into frames, each once.
type placer map[uintptr][]Frame

// own are the packages whose functions are no call sites.
var own = []string{"github.com/chorus-comms/chorus/observe/record.", "github.com/chorus-comms/chorus/observe.",
	"github.com/chorus-comms/chorus/comm."}

func (p placer) frames(pcs []uintptr) []Frame {
	all := []Frame{}
	for _, pc := range pcs {
		if pc == 0 {
			break
		}
		fs, ok := p[pc]
		if f, is := SiteFrame(pc); is {
			fs, ok = []Frame{f}, true
		}
		if !ok && embedded.Load() {
			break // the library's own
		}
		if !ok {
			it := runtime.CallersFrames([]uintptr{pc})
			for more := true; more; {
				var f runtime.Frame
				if f, more = it.Next(); f.Function != "" && !Internal(f.Function) {
					fs = append(fs, Frame{Name: f.Function, File: f.File, Line: f.Line})
				}
			}
			p[pc] = fs
		}
		all = append(all, fs...)
	}
	return all
}

// Internal reports whether a function is the Go runtime's or belongs to the packages whose functions are no call sites.
func Internal(function string) bool {
	for _, p := range own {
		if strings.HasPrefix(function, p) {
			return true
		}
	}
	return strings.HasPrefix(function, "runtime.")
}
