package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// askProfile asks for a profile: its name and a number of seconds follow. The answer is the profile, and nothing if
// there is none.
const askProfile = "profile"

// longestProfile bounds how long a profile of the CPU may take, in seconds.
const longestProfile = 600

// profile writes a profile of this process. A CPU profile ends with closed, and has the samples so far: a rank that
// leaves doesn't wait for its profile.
func profile(c net.Conn, name string, seconds int, closed <-chan struct{}) {
	if name != "profile" {
		if p := pprof.Lookup(name); p != nil {
			p.WriteTo(c, 0)
		}
		return
	}
	d := time.Duration(min(max(seconds, 1), longestProfile)) * time.Second
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

// Profile writes a profile, as package runtime/pprof names them, or "profile" for one of the CPU over some seconds, of
// the process of a rank whose dumps would go to dir.
func Profile(ctx context.Context, w io.Writer, dir string, rank int, name string, seconds int) error {
	if name == "" || strings.ContainsAny(name, " \n") || seconds > longestProfile {
		return fmt.Errorf("observe: no profile %q over %d seconds", name, seconds)
	}
	paths, err := matching(dir, fmt.Sprint("*", rankMark, rank, socketSuffix))
	if err != nil || len(paths) != 1 {
		return errors.Join(fmt.Errorf("observe: rank %d does not run here", rank), err)
	}
	var n int64
	err = connect(ctx, paths[0], fmt.Sprintf("%s %s %d", askProfile, name, seconds), func(c net.Conn) (err error) {
		n, err = io.Copy(w, c)
		return err
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("observe: rank %d has no profile %q, or one is being made", rank, name)
	}
	return err
}
