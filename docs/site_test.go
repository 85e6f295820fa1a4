package docs

import (
	"encoding/xml"
	"regexp"
	"strings"
	"testing"
)

// TestSiteFaces demands that the site has a logo, and colours of its own for both schemes.
// It loads nothing from outside.
func TestSiteFaces(t *testing.T) {
	theme, css, logo := read(t, "../site/mkdocs.yml"), read(t, "../site/site.css"), read(t, "../site/logo.svg")
	for part, n := range map[string]int{"primary: custom": 2, "accent: custom": 2,
		`media: "(prefers-color-scheme: light)"`: 1, `media: "(prefers-color-scheme: dark)"`: 1,
		"logo: logo.svg": 1, "favicon: logo.svg": 1, "font: false": 1} {
		if got := strings.Count(theme, part); got != n {
			t.Errorf("mkdocs.yml has %d times %q, not %d times", got, part, n)
		}
	}
	colors := map[string]map[string]string{}
	for _, m := range regexp.MustCompile(`\[data-md-color-scheme="(\w+)"\] \{([^}]*)\}`).FindAllStringSubmatch(css, -1) {
		colors[m[1]] = map[string]string{}
		for _, set := range regexp.MustCompile(`(--md-[\w-]+): (#\w+);`).FindAllStringSubmatch(m[2], -1) {
			colors[m[1]][set[1]] = set[2]
		}
	}
	if len(colors["default"]) < 5 {
		t.Errorf("site.css sets %v", colors)
	}
	for name := range colors["default"] {
		if colors["slate"][name] == "" {
			t.Errorf("site.css has no dark %s", name)
		}
	}
	if err := xml.Unmarshal([]byte(logo), new(struct{})); err != nil {
		t.Error(err)
	}
	if strings.Contains(css, "url(") || strings.Contains(css, "@import") || strings.Contains(logo, "href") {
		t.Error("the site's style or logo loads another file")
	}
}
