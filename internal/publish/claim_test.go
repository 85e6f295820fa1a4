package publish

import "testing"

// Claim changes nothing, wherever the word lies in its line.
func TestClaim(t *testing.T) {
	words := [16]uint64{}
	for i := range words {
		words[i] = uint64(i)
		Claim(&words[i])
		if words[i] != uint64(i) {
			t.Errorf("word %d is %d after Claim", i, words[i])
		}
	}
}
