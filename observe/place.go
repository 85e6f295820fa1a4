package observe

import (
	"runtime"
	"strings"
)

// placer turns return addresses into frames, each once.
type placer map[uintptr][]Frame

// own are the packages whose functions are no call sites.
var own = []string{"github.com/chorus-comms/chorus/observe.", "github.com/chorus-comms/chorus/comm."}

func (p placer) frames(pcs []uintptr) []Frame {
	all := []Frame{}
	for _, pc := range pcs {
		if pc == 0 {
			break
		}
		fs, ok := p[pc]
		if !ok {
			it := runtime.CallersFrames([]uintptr{pc})
			for more := true; more; {
				var f runtime.Frame
				if f, more = it.Next(); f.Function != "" && !internal(f.Function) {
					fs = append(fs, Frame{Name: f.Function, File: f.File, Line: f.Line})
				}
			}
			p[pc] = fs
		}
		all = append(all, fs...)
	}
	return all
}

func internal(function string) bool {
	for _, p := range own {
		if strings.HasPrefix(function, p) {
			return true
		}
	}
	return strings.HasPrefix(function, "runtime.")
}
