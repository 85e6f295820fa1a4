package sys

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

// The same signal within a second is an echo; another one isn't, nor a later one.
func TestEchoes(t *testing.T) {
	from, to := make(chan os.Signal, 16), make(chan os.Signal, 16)
	begin := time.Now()
	var times []time.Time
	for _, s := range []struct {
		signal os.Signal
		at     time.Duration
	}{
		{syscall.SIGINT, 0},
		{syscall.SIGINT, time.Millisecond},
		{syscall.SIGTERM, 2 * time.Millisecond},
		{syscall.SIGINT, 999 * time.Millisecond},
		{syscall.SIGINT, 1000 * time.Millisecond},
		{syscall.SIGTERM, 1500 * time.Millisecond},
	} {
		from <- s.signal
		times = append(times, begin.Add(s.at))
	}
	close(from)
	next := func() (t time.Time) { t, times = times[0], times[1:]; return t }
	pass(to, from, next)
	close(to)
	var got []os.Signal
	for s := range to {
		got = append(got, s)
	}
	want := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGINT, syscall.SIGTERM}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
