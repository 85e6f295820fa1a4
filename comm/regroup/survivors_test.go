package regroup

import "testing"

// TestProposalsOfHigherRanksStay follows the lowest rank's last proposal first; if that rank dies, what a higher one
// has said meanwhile still holds, for it says so only once.
func TestProposalsOfHigherRanksStay(t *testing.T) {
	r := &Survivors{Rank: 3, Size: 5, lost: map[int]string{}, leftOut: map[int]bool{},
		maybeAlive: map[int]bool{}, tried: map[string]bool{}}
	r.proposals = []proposal{{UUID: "a", from: 1}, {UUID: "b", from: 0}, {UUID: "c", from: 0}, {UUID: "d", from: 4}}
	for _, want := range []string{"c", "a"} {
		p, ok := r.proposed()
		if !ok || p.UUID != want {
			t.Fatalf("it follows %q, %v, want %q", p.UUID, ok, want)
		}
	}
	if p, ok := r.proposed(); ok {
		t.Errorf("it follows %q once more, or a higher rank", p.UUID)
	}
}
