package sys

import "testing"

// Hints change nothing, wherever the word lies in its line.
func TestHints(t *testing.T) {
	words := [16]uint64{}
	for i := range words {
		words[i] = uint64(i)
		PrefetchWrite(&words[i])
		Prefetch(&words[i])
		if words[i] != uint64(i) {
			t.Errorf("word %d is %d after PrefetchWrite and Prefetch", i, words[i])
		}
	}
}
