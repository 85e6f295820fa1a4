package process

import "testing"

func TestGuardLines(t *testing.T) {
	for line, want := range map[string]struct {
		op  byte
		pid int
	}{
		"+2": {'+', 2}, "-4711": {'-', 4711},
		"": {}, "+": {}, "+0": {}, "+1": {}, "-1": {}, "+-5": {}, "5": {}, "+99999999999999999999": {}, "*7": {}, "+ 7": {},
	} {
		op, pid, err := parseGuardLine(line)
		if op != want.op || pid != want.pid || (err == nil) != (want.op != 0) {
			t.Errorf("%q: %c %d %v", line, op, pid, err)
		}
	}
}

func FuzzGuardLine(f *testing.F) {
	for _, s := range []string{"+2", "-4711", "+1", "--1", "+99999999999999999999", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if op, pid, err := parseGuardLine(s); err == nil && (pid < 2 || op != '+' && op != '-') {
			t.Errorf("%q: %c %d", s, op, pid)
		}
	})
}
