package launch

import "testing"

func TestParseStreams(t *testing.T) {
	for text, want := range map[string][3]Streams{
		"0": {}, "1": {1, 1, 1}, "3": {3, 3, 3}, "0:3,2:1": {3, 0, 1}, " 1:2": {0, 2, 0},
	} {
		m, err := ParseStreams(text)
		if got := [3]Streams{m.Of(0), m.Of(1), m.Of(2)}; err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "4", "-1", "x", "0:4", "0:", ":1", "0:1,", "0:1,0:2", "-1:1", "0:1:2", "257"} {
		if m, err := ParseStreams(text); err == nil {
			t.Errorf("%q: %v, want an error", text, m)
		}
	}
}

func FuzzParseStreams(f *testing.F) {
	for _, s := range []string{"0", "3", "0:3,1:2", ":", "1:", "-1:2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseStreams(s)
		if err != nil {
			return
		}
		for r, v := range m.Rank {
			if r < 0 || v > Both {
				t.Errorf("%q: rank %d has %d", s, r, v)
			}
		}
		if m.All > Both {
			t.Errorf("%q: all have %d", s, m.All)
		}
	})
}
