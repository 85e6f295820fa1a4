package svg

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// elements reads an XML document to its end and counts its elements by name.
func elements(t *testing.T, doc []byte) map[string]int {
	t.Helper()
	count := map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(doc)); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if e, ok := tok.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
}

func TestWrite(t *testing.T) {
	p := Plot{Title: `a<b & "c"`, XLabel: "bytes", YLabel: "GB/s", Series: []Series{
		{Name: "shm", X: []float64{8, 4096, 1 << 28}, Y: []float64{0.1, 20, 56.25}},
		{Name: "tcp <lo>", X: []float64{8, 4096, 1 << 28, 1 << 30}, Y: []float64{0.01, 0, math.NaN(), math.Inf(1)}},
	}}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	got := elements(t, b.Bytes())
	if got["polyline"] != 2 || got["circle"] != 4 || got["svg"] != 1 {
		t.Errorf("%v: want 2 lines with the 4 points that can be drawn", got)
	}
	for _, want := range []string{"&lt;b &amp;", ">bytes<", ">GB/s<", ">60<", "tcp &lt;lo&gt;", "256 Mi"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in the plot", want)
		}
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error("a point is nowhere")
	}
}

// TestLogY wants ratios from 4 to 240 between ticks that stand in equal distances, one colour for two forms of the
// same, and a key that is not cut off.
func TestLogY(t *testing.T) {
	p := Plot{LogY: true, Series: []Series{
		{Name: "all-reduce", X: []float64{4096, 1 << 20}, Y: []float64{4, 40}},
		{Name: "all-reduce, chorus.empty", X: []float64{4096, 1 << 20}, Y: []float64{8, 240}, Dashed: true},
		{Name: "all-gather", X: []float64{4096, 1 << 20}, Y: []float64{6, 7}},
	}}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">2<", ">5<", ">10<", ">100<", ">500<",
		`stroke="#0072b2" stroke-width="2" stroke-dasharray`, `stroke="#d55e00"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in the plot", want)
		}
	}
	if _, drawn, _ := strings.Cut(b.String(), "</style>"); strings.Contains(drawn, Colors[2]) {
		t.Error("a dashed line has a colour of its own")
	}
	c := plotCanvas{log: true}
	c.scale(4, 240)
	if a, b := c.y(5)-c.y(50), c.y(20)-c.y(200); math.Abs(a-b) > 1e-9 || c.least != 2 || c.most != 500 {
		t.Errorf("a factor of ten is %v and %v high, from %v to %v", a, b, c.least, c.most)
	}
}

// TestTicks wants labels that don't touch, whatever the key's width and the range, and few of them.
func TestTicks(t *testing.T) {
	label := regexp.MustCompile(`<text x="([\d.]+)" y="([\d.]+)" text-anchor="(middle|end)" font-size="(12|14)">([^<]*)</text>`)
	for _, name := range []string{"a", "all-reduce, in memory that all ranks map"} {
		for most := 12; most <= 34; most++ {
			p := Plot{LogY: most%2 == 0, XLabel: "", Series: []Series{{Name: name, X: []float64{4, math.Exp2(float64(most))},
				Y: []float64{0.2, math.Exp2(float64(most) / 2)}}}}
			var b bytes.Buffer
			if err := p.Write(&b); err != nil {
				t.Fatal(err)
			}
			lastX, lastY := 0.0, math.Inf(1)
			for _, m := range label.FindAllStringSubmatch(b.String(), -1) {
				x, _ := strconv.ParseFloat(m[1], 64)
				y, _ := strconv.ParseFloat(m[2], 64)
				if m[5] == "" {
					continue
				}
				if m[3] == "end" { // of Y
					if lastY-y < 15 {
						t.Errorf("%q, to 2^%d: %s is %.0f above the tick before", name, most, m[5], lastY-y)
					}
					lastY = y
					continue
				}
				if from := x - 3.6*float64(len(m[5])); from < lastX+6 {
					t.Errorf("%q, to 2^%d: %s begins at %.0f, the one before ends at %.0f", name, most, m[5], from, lastX)
				}
				lastX = x + 3.6*float64(len(m[5]))
			}
			if lastX == 0 || math.IsInf(lastY, 1) {
				t.Fatal("found no ticks")
			}
		}
	}
}

// TestDark wants each colour of a plot to have another one on a dark ground.
func TestDark(t *testing.T) {
	p := Plot{Series: []Series{{Name: "a", X: []float64{8, 16}, Y: []float64{1, 2}}}}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	style, drawn, _ := strings.Cut(b.String(), "</style>")
	if !strings.Contains(style, "@media (prefers-color-scheme: dark)") {
		t.Fatal("one scheme only")
	}
	for _, m := range regexp.MustCompile(`(?:fill|stroke)="(#[0-9a-f]+)"`).FindAllStringSubmatch(drawn, -1) {
		if !strings.Contains(style, `[fill="`+m[1]+`"]`) {
			t.Errorf("%s is the same on a dark ground", m[1])
		}
	}
}

func TestWriteNothing(t *testing.T) {
	var b bytes.Buffer
	if err := (&Plot{}).Write(&b); err != nil {
		t.Fatal(err)
	}
	elements(t, b.Bytes())
}

func TestNiceStep(t *testing.T) {
	for x, want := range map[float64]float64{0: 1, 0.9: 1, 1: 1, 1.1: 2, 3: 5, 6: 10, 12: 20, 0.03: 0.05} {
		if got := niceStep(x); math.Abs(got-want) > want*1e-9 {
			t.Errorf("niceStep(%v) = %v, want %v", x, got, want)
		}
	}
}
