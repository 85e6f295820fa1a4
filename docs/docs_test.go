// Package docs holds the documentation to what the code does.
package docs

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// pages returns every page of documentation, by its path from here.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{"../README.md": read(t, "../README.md"), "../CHANGELOG.md": read(t, "../CHANGELOG.md")}
	for _, root := range []string{".", "../examples"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".md") {
				found[path] = read(t, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// TestChangelog: each line of the changelog stands once, in an area of a version. Git may merge it by union, which can
// bring back what was rewritten.
func TestChangelog(t *testing.T) {
	area, seen := "", map[string]bool{}
	for line := range strings.Lines(read(t, "../CHANGELOG.md")) {
		switch {
		case strings.HasPrefix(line, "## "):
			area = ""
			seen = map[string]bool{}
		case strings.HasPrefix(line, "### "):
			if area = line; seen[area] {
				t.Errorf("the area %q is there twice", strings.TrimSpace(area))
			}
			seen[area] = true
		case strings.HasPrefix(line, "- "):
			if area == "" {
				t.Fatalf("it's in no area: %.100s", line)
			}
			if seen[line] {
				t.Errorf("it's there twice: %.100s", line)
			}
			seen[line] = true
		}
	}
}

// TestLinks follows every link to a file of the repository.
func TestLinks(t *testing.T) {
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	link := regexp.MustCompile(`\]\(([^)]+)\)|src="([^"]+)"`)
	links := 0
	for page, text := range pages(t) {
		text = code.ReplaceAllString(text, "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, err := url.Parse(m[1] + m[2])
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if target.Scheme != "" || target.Path == "" {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target.Path)); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if links < 20 {
		t.Errorf("found only %d links", links)
	}
}

// TestPictures demands that each picture can be read on a light ground and on a dark one, and is on a page.
func TestPictures(t *testing.T) {
	pictures, err := filepath.Glob("*.svg")
	if err != nil || len(pictures) < 5 {
		t.Fatalf("%d pictures, %v", len(pictures), err)
	}
	for _, path := range pictures {
		text := read(t, path)
		if err := xml.Unmarshal([]byte(text), new(struct{})); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if !strings.Contains(text, "@media (prefers-color-scheme: dark)") {
			t.Errorf("%s has one colour scheme", path)
		}
		shown := false
		for _, page := range pages(t) {
			shown = shown || strings.Contains(page, path+")") || strings.Contains(page, path+`"`)
		}
		if !shown {
			t.Errorf("no page shows %s", path)
		}
	}
}

// TestAnchors follows every link to a heading, by the anchors that GitHub and the site give.
func TestAnchors(t *testing.T) {
	code := regexp.MustCompile("(?s)```.*?```")
	heading := regexp.MustCompile("(?m)^#+ (.*)$")
	markup := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)|[^\pL\pN _-]`)
	link := regexp.MustCompile(`\]\(([^)#:]*)#([^)]+)\)`)
	anchors, links := map[string]map[string]bool{}, 0
	for page, text := range pages(t) {
		anchors[page] = map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			words := markup.ReplaceAllString(strings.ToLower(m[1]), "$1")
			anchors[page][strings.ReplaceAll(words, " ", "-")] = true
		}
	}
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if known, ok := anchors[target]; ok {
				links++
				if !known[m[2]] {
					t.Errorf("%s: %s has no heading for #%s", page, target, m[2])
				}
			}
		}
	}
	if links < 20 {
		t.Errorf("found only %d links to headings", links)
	}
}

// TestNavigation demands that the site's navigation has every page, and none that isn't there.
func TestNavigation(t *testing.T) {
	_, nav, _ := strings.Cut(read(t, "../site/mkdocs.yml"), "\nnav:\n")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +- (?:[^:]+: )?([a-z0-9-]+\.md)$`).FindAllStringSubmatch(nav, -1) {
		listed[m[1]] = true
	}
	outside := map[string]bool{"index.md": true, "changelog.md": true, "contributing.md": true, "reporting.md": true, "examples.md": true}
	for page := range pages(t) {
		if filepath.Dir(page) == "." && !listed[page] {
			t.Errorf("site/mkdocs.yml lacks %s in its navigation", page)
		}
	}
	for page := range listed {
		if _, err := os.Stat(page); err != nil && !outside[page] {
			t.Errorf("site/mkdocs.yml has %s in its navigation: %v", page, err)
		}
	}
}

// TestExcerpts demands that code which a page takes from a file, as the comment
// "from: path" above it says, stands in that file.
func TestExcerpts(t *testing.T) {
	excerpt := regexp.MustCompile("(?s)<!-- from: (\\S+) -->\n(?:<!-- file: \\S+ -->\n)?```[a-z]*\n(.*?)```")
	found := 0
	for page, text := range pages(t) {
		for _, m := range excerpt.FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(read(t, filepath.Join("..", m[1])), m[2]) {
				t.Errorf("%s: this is not in %s:\n%s", page, m[1], m[2])
			}
		}
	}
	if found < 4 {
		t.Errorf("found only %d excerpts", found)
	}
}

// TestVariables demands that the page lists every variable, with its default,
// and none that doesn't exist.
func TestVariables(t *testing.T) {
	cfg, err := config.Load(func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, "configuration.md")
	known := map[string]bool{}
	for _, v := range cfg.Vars() {
		known[v.Name] = true
		def := "(empty)"
		if v.Default != "" {
			def = "`" + v.Default + "`"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s |", v.Name, def, v.Doc); !strings.Contains(page, row+"\n") {
			t.Errorf("configuration.md lacks the row\n%s", row)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(page, -1) {
		if !known[m[1]] {
			t.Errorf("configuration.md lists %s, which package config doesn't know", m[1])
		}
	}
}

// TestAlgorithms demands that the page lists every algorithm of this module.
func TestAlgorithms(t *testing.T) {
	page := read(t, "algorithms.md")
	for _, c := range plan.Collectives() {
		for _, a := range plan.Algorithms(c) {
			if !strings.Contains(page, "`"+a.Name+"`") {
				t.Errorf("algorithms.md lacks %v %s", c, a.Name)
			}
		}
	}
}

// constant replaces what differs from run to run in messages: times, lines of programs, and whether
// an operation had its number yet when it was aborted.
func constant(message string) string {
	message = placed.ReplaceAllString(timed.ReplaceAllString(message, "T"), "at PLACE")
	return numbered.ReplaceAllString(message, "")
}

var (
	timed    = regexp.MustCompile(`\b\d+(\.\d+)?(ms|s)\b`)
	placed   = regexp.MustCompile(`at \S+\.go:\d+ \(\S+\)`)
	numbered = regexp.MustCompile(` #1\b`)
)

// TestMessages provokes the errors that the page explains and looks for their
// words in it.
func TestMessages(t *testing.T) {
	page := constant(read(t, "debugging.md"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	vector := func(n int) *tensor.Tensor { return tensor.Of(make([]float32, n)) }
	received, refused, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for name, provoke := range map[string]func(c *comm.Comm) error{
		"mismatch": func(c *comm.Comm) error {
			if c.Rank() == c.Size()-1 {
				return c.AllReduce(ctx, vector(9), comm.Sum)
			}
			return c.AllReduce(ctx, vector(8), comm.Sum)
		},
		"missing": func(c *comm.Comm) error {
			if err := c.Barrier(ctx); err != nil {
				return err
			}
			if c.Rank() == 2 {
				<-c.Broken()
				return nil
			}
			return c.AllReduce(ctx, vector(8), comm.Sum, comm.Timeout(200*time.Millisecond))
		},
		"crossed": func(c *comm.Comm) error {
			part, err := c.Split(ctx, []int{0, 1, 2}, comm.SplitName("part"))
			if err != nil {
				return err
			}
			defer part.Finalize(ctx)
			if c.Rank() == 2 {
				return part.Barrier(ctx)
			}
			return c.AllReduce(ctx, vector(8), comm.Sum, comm.Timeout(200*time.Millisecond))
		},
		"dtype": func(c *comm.Comm) error {
			if c.Rank() == c.Size()-1 {
				return c.AllReduce(ctx, tensor.Of(make([]float64, 8)), comm.Sum)
			}
			return c.AllReduce(ctx, vector(8), comm.Sum)
		},
		"message": func(c *comm.Comm) error {
			if c.Rank() == 0 {
				defer close(received)
				return c.Recv(ctx, vector(8), 2, comm.Timeout(200*time.Millisecond))
			}
			<-received
			return nil
		},
		"abort": func(c *comm.Comm) error {
			if c.Rank() == 2 {
				c.Abort(errors.New("loss is NaN"))
			}
			return c.Barrier(ctx)
		},
		"finalized": func(c *comm.Comm) error {
			if err := c.Finalize(ctx); err != nil {
				return err
			}
			return c.Barrier(ctx)
		},
		"refused": func(c *comm.Comm) error {
			if c.Rank() == 2 {
				c.AllReduce(ctx, vector(8), comm.Sum, comm.Into(vector(9)))
				close(refused)
				<-c.Broken()
				return nil
			}
			<-refused
			return c.AllReduce(ctx, vector(8), comm.Sum, comm.Timeout(200*time.Millisecond))
		},
		"left": func(c *comm.Comm) error {
			if err := c.AllReduce(ctx, vector(8), comm.Sum); err != nil {
				return err
			}
			if c.Rank() == 1 {
				err := c.Finalize(ctx)
				close(left)
				return err
			}
			<-left
			return c.AllReduce(ctx, vector(8), comm.Sum)
		},
		"invalid": func(c *comm.Comm) error { return c.Broadcast(ctx, vector(8), 3) },
		"canceled": func(c *comm.Comm) error {
			if c.Rank() == 2 {
				<-c.Broken()
				return nil
			}
			short, cancel := context.WithCancel(ctx)
			defer time.AfterFunc(50*time.Millisecond, cancel).Stop()
			if c.Rank() == 0 {
				return c.Barrier(short)
			}
			return c.Barrier(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			size := 3
			if name == "mismatch" || name == "dtype" || name == "left" {
				size = 2 // with three it depends on the timing which are named
			}
			errs := run(t, ctx, size, size, time.Minute, provoke)
			if errs[0] == nil {
				t.Fatal("no error")
			}
			if text := constant(errs[0].Error()); !strings.Contains(page, text+"\n") {
				t.Errorf("debugging.md lacks\n%s", errs[0])
			}
		})
	}
	t.Run("rendezvous", func(t *testing.T) {
		errs := run(t, ctx, 3, 2, time.Second, nil)
		var to *comm.TimeoutError
		if !errors.As(errs[0], &to) || len(to.Missing) != 1 || to.Missing[0] != 2 || len(to.Arrived) != 2 ||
			!errors.Is(errs[0], comm.ErrTimeout) {
			t.Errorf("not a *TimeoutError that names rank 2: %v", errs[0])
		}
		if text := constant(errs[0].Error()); !strings.Contains(page, text+"\n") {
			t.Errorf("debugging.md lacks\n%s", errs[0])
		}
	})
	t.Run("withdrawn", func(t *testing.T) { // as the native backend reports it; package commtest provokes it
		err := &comm.AbortedError{Where: backend.Where{Comm: "world", Op: "recv", Reporter: 0}, By: 2, Reason: "it withdrew the message on its way"}
		if !strings.Contains(page, constant(err.Error())+"\n") {
			t.Errorf("debugging.md lacks\n%v", err)
		}
	})
	t.Run("lost", func(t *testing.T) { // as fabrics report it; a rank can't be killed here
		err := &comm.PeerLostError{Where: backend.Where{Comm: "world", Op: "all_reduce", Seq: 18, Reporter: 0}, Peer: 2, Cause: "connection 0: connection reset by peer",
			Attendance: backend.Attendance{Elapsed: 12 * time.Millisecond, Missing: []int{2}, Arrived: []int{0, 1, 3}}}
		if !strings.Contains(page, constant(err.Error())+"\n") {
			t.Errorf("debugging.md lacks\n%v", err)
		}
	})
}

// run opens a world whose first ranks are present and returns what f, or New, returned on each.
func run(t *testing.T, ctx context.Context, size, present int, timeout time.Duration, f func(c *comm.Comm) error) []error {
	t.Helper()
	st := store.NewHash(time.Minute)
	errs := make([]error, size)
	var wg sync.WaitGroup
	for r := range present {
		wg.Go(func() {
			c, err := comm.New(ctx, comm.WithRank(r, size), comm.WithStore(st), comm.WithTimeout(timeout), comm.WithFabric("mem"))
			if err != nil {
				errs[r] = err
				return
			}
			if errs[r] = f(c); !errors.Is(errs[r], comm.ErrFinalized) {
				c.Finalize(ctx)
			}
		})
	}
	wg.Wait()
	return errs
}
