package record

import (
	"io"
	"net"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// AskProfile asks for a profile: its name and a number of seconds follow. The answer is the profile, and nothing if
// there is none.
const AskProfile = "profile"

// LongestProfile bounds how long a profile of the CPU may take, in seconds.
const LongestProfile = 600

// profile writes a profile of this process. A CPU profile ends with closed, and has the samples so far: a rank that
// leaves doesn't wait for its profile.
func profile(c net.Conn, name string, seconds int, closed <-chan struct{}) {
	if name != "profile" {
		if p := pprof.Lookup(name); p != nil {
			p.WriteTo(c, 0)
		}
		return
	}
	d := time.Duration(min(max(seconds, 1), LongestProfile)) * time.Second
	c.SetDeadline(time.Now().Add(d + statusTimeout))
	if pprof.StartCPUProfile(c) != nil {
		return // another profile is under way
	}
	defer pprof.StopCPUProfile()
	ended := make(chan struct{})
	go func() { // the client may disconnect
		io.Copy(io.Discard, c)
		close(ended)
	}()
	select {
	case <-time.After(d):
	case <-ended:
	case <-closed:
		c.SetDeadline(time.Now().Add(statusTimeout))
	}
}

// parseProfile reads the rest of a request.
func parseProfile(rest string) (name string, seconds int) {
	name, text, _ := strings.Cut(rest, " ")
	seconds, _ = strconv.Atoi(text)
	return name, seconds
}
