package docs

import (
	"cmp"
	"encoding/xml"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// layersPicture is what layers.svg draws.
type layersPicture struct {
	Boxes []struct {
		X float64 `xml:"x,attr"`
		Y float64 `xml:"y,attr"`
		W float64 `xml:"width,attr"`
		H float64 `xml:"height,attr"`
	} `xml:"rect"`
	Texts []struct {
		Class  string  `xml:"class,attr"`
		X      float64 `xml:"x,attr"` // its middle
		Y      float64 `xml:"y,attr"` // its foot
		Length float64 `xml:"textLength,attr"`
		Adjust string  `xml:"lengthAdjust,attr"`
		Words  string  `xml:",chardata"`
	} `xml:"text"`
}

// TestLayersPicture demands that words in layers.svg have a set width, so that they stay apart and in their boxes with
// any font. The picture has the backends, fabrics, devices and layers of the map.
func TestLayersPicture(t *testing.T) {
	var p layersPicture
	if err := xml.Unmarshal([]byte(read(t, "layers.svg")), &p); err != nil {
		t.Fatal(err)
	}
	var words []string
	for i, s := range p.Texts {
		size := 15.0
		if s.Class == "s" {
			size = 12
		}
		words = append(words, strings.FieldsFunc(strings.ToLower(s.Words), func(r rune) bool {
			return strings.ContainsRune(" ,:·", r)
		})...)
		if letter := s.Length / size / float64(utf8.RuneCountInString(s.Words)); letter < 0.35 || letter > 0.75 {
			t.Errorf("%q has letters of %.2f em", s.Words, letter)
		}
		if s.Adjust != "spacingAndGlyphs" {
			t.Errorf("letters of %q keep the width of their font", s.Words)
		}
		left, right, area := 0.0, 0.0, 0.0 // of the smallest box around it
		for _, b := range p.Boxes {
			if b.X < s.X && s.X < b.X+b.W && b.Y < s.Y && s.Y < b.Y+b.H && (area == 0 || b.W*b.H < area) {
				left, right, area = b.X, b.X+b.W, b.W*b.H
			}
		}
		if s.X-s.Length/2 < left+5 || s.X+s.Length/2 > right-5 {
			t.Errorf("%q touches its box", s.Words)
		}
		for _, o := range p.Texts[:i] {
			dx, dy := max(s.X-o.X, o.X-s.X), max(s.Y-o.Y, o.Y-s.Y)
			if dy < 14 && dx < (s.Length+o.Length)/2+8 {
				t.Errorf("%q touches %q", s.Words, o.Words)
			}
		}
	}

	// Packages that are parts of the ones drawn, layers that are drawn whole, and a driver that goes by its devices' name.
	parts := []string{"comm/backend", "comm/regroup", "fabric/transport", "fabric/fault", "device/rng", "device/cache"}
	whole := []string{"comm", "fabric", "device", "kernel", "plan", "tensor", "hostmem", "kern", "dtype"}
	named := map[string]string{"device/gpu": "cuda"}
	want := []string{"zoom", "accinte", "chorus_device", "hip", "rccl"}
	for _, of := range slices.Concat(layers(t)...) {
		plugIn := slices.Contains([]string{"comm", "fabric", "device"}, path.Dir(of)) && !strings.HasSuffix(of, "test")
		if slices.Contains(whole, of) || plugIn && !slices.Contains(parts, of) {
			want = append(want, cmp.Or(named[of], path.Base(of)))
		}
	}
	if len(want) < 25 {
		t.Errorf("the map has only %v", want)
	}
	for _, name := range want {
		if !slices.Contains(words, name) {
			t.Errorf("layers.svg lacks %s", name)
		}
	}
}
