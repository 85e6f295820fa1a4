package sys

import "testing"

func TestParseCPUInfo(t *testing.T) {
	for text, want := range map[string]CPUInfo{
		"processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nprocessor\t: 1\n": {"AMD EPYC", 2},
		"processor\t: 0\nCPU part\t: 0xd40\n":                                    {"0xd40", 1},
		"":                                                                       {"unknown", 1},
	} {
		if got := parseCPUInfo(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
