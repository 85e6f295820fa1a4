package sys

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// GroupTime is the processor time that the processes of a group have used, with that of their children which have ended.
func GroupTime(group int) (time.Duration, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, e := range entries {
		if name := e.Name(); name[0] < '0' || name[0] > '9' {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		ticks += ticksOf(text, group)
	}
	return time.Duration(ticks) * (time.Second / ticksASecond), nil
}

// ticksASecond is USER_HZ, which is the same on all processors that Go knows.
const ticksASecond = 100

// ticksOf reads a process's time from its line in /proc; 0 if it's of another group.
func ticksOf(stat []byte, group int) (ticks int64) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name before may have spaces; the state follows
	const ofGroup, user, last = 2, 11, 14                           // to last: user, system, and both of children
	if len(fields) <= last || string(fields[ofGroup]) != strconv.Itoa(group) {
		return 0
	}
	for _, f := range fields[user : last+1] {
		n, _ := strconv.ParseInt(string(f), 10, 64)
		ticks += n
	}
	return ticks
}
