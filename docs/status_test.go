package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// statusTable returns the rows of the table under a heading of status.md, without its head.
func statusTable(t *testing.T, heading string) [][]string {
	t.Helper()
	_, text, found := strings.Cut(read(t, "status.md"), "\n## "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var rows [][]string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|\n"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	if !found || len(rows) < 2 {
		t.Fatalf("status.md has no table of %s", heading)
	}
	return rows[1:]
}

// allPages are those of this folder and of packages, by their paths from here. The changelog tells of the past.
func allPages(t *testing.T) map[string]string {
	t.Helper()
	all := pages(t)
	for _, path := range []string{"../CHANGELOG.md", "features.md", "torch-operators.md", "zoom-operators.md"} { // long lists
		delete(all, path)
	}
	for _, pattern := range []string{"../python/*.md", "../python/[^.]*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		for _, path := range found {
			all[path] = read(t, path)
		}
	}
	return all
}

var (
	codeBlock = regexp.MustCompile("(?s)```.*?```")
	linkText  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	spaces    = regexp.MustCompile(`\s+`)
	ending    = regexp.MustCompile(`[.;:]\s|\n\n|\n[-|#]|\|`)
)

// sentences are the sentences and cells of a page, without code and links.
func sentences(text string) []string {
	text = linkText.ReplaceAllString(codeBlock.ReplaceAllString(text, "\n\n"), "$1")
	var all []string
	for _, s := range ending.Split(text, -1) {
		all = append(all, strings.TrimSpace(spaces.ReplaceAllString(s, " ")))
	}
	return all
}

// claim is what sentences say of the hardware that something has run on.
var claim = regexp.MustCompile(`\bH[12]00\b|\b[Oo]ver (a )?stand-in|stand-ins? (only|alone)|not tried` +
	`|\b([Nn]ever|[Nn]ot|[Nn]one|[Nn]othing|haven't|hasn't|nor)\b.{0,20}\b(run|ran|tested|tried)\b.{0,12}\b(GPU|card|RDMA|here|so far|yet|network)` +
	`|\b(never|not)( run)? (yet )?(on|by) (a |an |any |such a )?(GPU|card|RDMA|AMD|network)` +
	`|[Nn]o (AMD )?GPU has been`)

// wrongClaims are the sentences of a page that say of hardware what none of the words do.
func wrongClaims(text string, words []string) (wrong []string, claims int) {
	for _, s := range sentences(text) {
		if !claim.MatchString(s) {
			continue
		}
		claims++
		if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) }) {
			wrong = append(wrong, s)
		}
	}
	return wrong, claims
}

// TestStatus demands that all pages say in the words of status.md on which hardware something has run.
func TestStatus(t *testing.T) {
	var words []string
	for _, row := range statusTable(t, "Hardware") {
		words = append(words, row[1])
	}
	total := 0
	for page, text := range allPages(t) {
		if page == "status.md" || page == "gpu-h200.md" {
			continue
		}
		wrong, claims := wrongClaims(text, words)
		total += claims
		for _, s := range wrong {
			t.Errorf("%s says it in other words than status.md: %s", page, s)
		}
	}
	if total < 10 {
		t.Errorf("found only %d", total)
	}
}

// TestStatusFinds: sentences that contradicted each other are found.
func TestStatusFinds(t *testing.T) {
	for _, s := range []string{
		"GPU's tensors; that has never [run on a GPU](gpu.md).", "None of this has [run on a GPU so far](gpu.md).",
		"by NCCL or RCCL, of GPUs (never run on a GPU so far).", "| they use `cuda`, where they haven't run so far |",
		"| DeepSpeed | not tried |", "NCCL has run on an H200.", "cuBLAS and hipBLAS have not run here, for want of a GPU",
		"our driver has run over stand-ins alone", "works by OpenCL; not run on a GPU yet",
	} {
		if wrong, _ := wrongClaims(s, []string{"on one NVIDIA H200", "over stand-ins only"}); len(wrong) != 1 {
			t.Errorf("%q has %d wrong claims", s, len(wrong))
		}
	}
	if wrong, claims := wrongClaims("It ran [on\none NVIDIA H200](x.md).", []string{"on one NVIDIA H200"}); len(wrong) != 0 || claims != 1 {
		t.Errorf("%q of %d", wrong, claims)
	}
}

// needed finds a version's first number in a file.
func needed(t *testing.T, path, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(read(t, path))
	if m == nil {
		t.Fatalf("%s has no %s", path, pattern)
	}
	return m[1]
}

// TestVersions holds the versions of status.md to the files that decide them, and those of the other pages to status.md.
func TestVersions(t *testing.T) {
	run := needed(t, "../Makefile", `(?m)^TORCH +:= (\S+)`)
	others := strings.Fields(needed(t, "../Makefile", `(?m)^TORCH_VERSIONS \?= (.*)`))
	all := append([]string{run}, others...)
	slices.SortFunc(all, compareVersions)
	want := map[string]string{
		"PyTorch, for `chorus`": needed(t, "../python/pyproject.toml", `dependencies = \["torch>=([\d.]+)"`),
		"PyTorch, for devices":  needed(t, "../python/device/pyproject.toml", `dependencies = \["torch>=([\d.]+)"`),
		"Python":                needed(t, "../python/pyproject.toml", `requires-python = ">=([\d.]+)"`),
		"Go":                    needed(t, "../go.mod", `(?m)^go (\d+\.\d+)`),
	}
	for _, row := range statusTable(t, "Versions") {
		version, _, _ := strings.Cut(row[1], ";")
		if version != want[row[0]] {
			t.Errorf("status.md: %s %s, and the code needs %q", row[0], version, want[row[0]])
		}
		if row[0] == "PyTorch, for `chorus`" && row[2] != strings.Join(all, ", ") {
			t.Errorf("status.md: tests run with %s, and the Makefile has %s", row[2], all)
		}
	}
	torch := []string{want["PyTorch, for `chorus`"], want["PyTorch, for devices"]}
	needs := regexp.MustCompile(`\b(needs?|[Ii]nstall|wheel is|[Tt]ested with|tests run (on|with))\b`)
	found := 0
	for page, text := range allPages(t) {
		for _, s := range sentences(text) {
			if page == "status.md" || !needs.MatchString(s) {
				continue
			}
			tested := strings.Contains(s, "ested with") || strings.Contains(s, "tests run")
			for _, m := range regexp.MustCompile(`\b(PyTorch|Python|Go) (\d+\.\d+)`).FindAllStringSubmatch(s, -1) {
				ok := m[2] == want[m[1]] || m[1] == "PyTorch" && slices.Contains(torch, m[2]) ||
					m[1] == "Python" && m[2] == "3.11" && strings.Contains(strings.ToLower(s), "call site")
				if tested {
					ok = ok || slices.ContainsFunc(all, func(v string) bool { return strings.HasPrefix(v, m[2]+".") })
				}
				found++
				if !ok {
					t.Errorf("%s: %s %s isn't what status.md has: %s", page, m[1], m[2], s)
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("found only %d versions", found)
	}
}

func compareVersions(a, b string) int {
	number := func(s string) (n int) {
		for _, r := range s {
			n = n*10 + int(r-'0')
		}
		return n
	}
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int { return number(x) - number(y) })
}

// TestFrameworkVersions: frameworks.md and clusters.md name the same versions.
func TestFrameworkVersions(t *testing.T) {
	program := regexp.MustCompile(`(?m)^\| \[(\w+)\]\([^)]*\) \| \S+ ([\d.]+) \|`)
	versions := map[string]string{}
	for _, m := range program.FindAllStringSubmatch(read(t, "frameworks.md"), -1) {
		versions[m[1]] = m[2]
	}
	ran := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| [^|]* \| ([\d.]+) \| (frameworks/[^|]*) \|`).FindAllStringSubmatch(read(t, "clusters.md"), -1) {
		for path := range strings.SplitSeq(m[2], ", ") {
			ran[strings.TrimSuffix(filepath.Base(path), ".py")] = m[1]
		}
	}
	if len(versions) < 5 || !maps.Equal(versions, ran) {
		t.Errorf("frameworks.md has %v, and clusters.md %v", versions, ran)
	}
	for name := range versions {
		if _, err := os.Stat("../examples/frameworks/" + name + ".py"); err != nil {
			t.Error(err)
		}
	}
}
