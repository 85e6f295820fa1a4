package docs

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/svg"
)

// TestReaders demands that each page says in its first sentence for whom it is. README.md is for all.
func TestReaders(t *testing.T) {
	first := regexp.MustCompile(`\A# [^\n]+\n\nFor [^\n]+\.`)
	all := allPages(t)
	for _, path := range []string{"torch-operators.md", "zoom-operators.md"} {
		all[path] = read(t, path)
	}
	for page, text := range all {
		if page != "../README.md" && !first.MatchString(text) {
			t.Errorf("%s doesn't begin with a sentence \"For ...\" about its readers", page)
		}
	}
}

// TestHangPicture demands that hang.svg shows what README.md says of a hang. CHORUS_TEST_WRITE=1 draws it.
func TestHangPicture(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "../README.md"), "\n## A hang explained\n")
	_, text, _ = strings.Cut(text, "```text\n")
	text, _, closed := strings.Cut(text, "\n```")
	if !closed {
		t.Fatal("README.md shows no hang")
	}
	var b bytes.Buffer
	lines := append([]string{"$ chorus explain mine"}, strings.Split(text, "\n")...)
	if err := terminal(lines, "missing: rank 2").End(&b); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("CHORUS_TEST_WRITE") != "" {
		if err := os.WriteFile("hang.svg", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, "hang.svg") != b.String() {
		t.Error("hang.svg isn't what README.md shows: CHORUS_TEST_WRITE=1 go test -run HangPicture ./docs")
	}
}

// terminal draws lines of a terminal. Each has a set width, whichever font a reader has. One phrase is coloured.
func terminal(lines []string, phrase string) *svg.Canvas {
	const letter, line, edge, size = 7.8, 22, 18, 13
	most := 0
	for _, s := range lines {
		most = max(most, len(s))
	}
	c := svg.New(int(letter*float64(most))+2*edge, line*len(lines)+2*edge, size)
	c.Printf(`<g font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace">` + "\n")
	for i, s := range lines {
		n := len(s)
		s = strings.TrimLeft(s, " ")
		coloured := `<tspan font-weight="bold" fill="` + svg.Colors[1] + `">` + phrase + "</tspan>"
		said := strings.Replace(svg.Escape(s), phrase, coloured, 1)
		c.Printf(`<text x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`+"\n",
			edge+letter*float64(n-len(s)), edge+line*i+size+2, letter*float64(len(s)), said)
	}
	c.Printf("</g>\n")
	return c
}
