package digits

import "testing"

func TestLoad(t *testing.T) {
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	var classes [Classes]int
	ink := 0
	for i := range Count {
		classes[s.Label(i)]++
		for _, p := range s.Image(i) {
			if p > Black {
				t.Fatalf("image %d has a pixel of %d", i, p)
			}
			ink += int(p)
		}
	}
	// The counts that the set's description states, and the sum of all pixels of the original file.
	if want := [Classes]int{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}; classes != want {
		t.Errorf("classes have %v images, want %v", classes, want)
	}
	if ink != 561718 {
		t.Errorf("pixels sum to %d, want 561718", ink)
	}
}
