package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/printer"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// repository is where the sources are seen.
const repository = "https://github.com/chorus-comms/chorus/blob/main/"

// pages returns the text of each page by its name within the folder.
func (m *module) pages() map[string]string {
	pages := map[string]string{}
	var index strings.Builder
	index.WriteString("# Go packages\n\n| package | what it is |\n|---|---|\n")
	for _, importPath := range slices.Sorted(maps.Keys(m.packages)) {
		p, name := m.packages[importPath], m.short(importPath)
		pages[name+".md"] = m.page(p)
		synopsis := strings.TrimPrefix(p.Synopsis(p.Doc), "Package "+p.Name+" ")
		fmt.Fprintf(&index, "| [%s](%s.md) | %s |\n", name, name, strings.ReplaceAll(synopsis, "|", `\|`))
	}
	pages["index.md"] = index.String()
	return pages
}

// page is one package's text.
type page struct {
	*module
	pkg *doc.Package
	out strings.Builder
}

func (m *module) page(pkg *doc.Package) string {
	p := &page{module: m, pkg: pkg}
	fmt.Fprintf(&p.out, "# %s\n\n```go\nimport %q\n```\n\n", m.short(pkg.ImportPath), pkg.ImportPath)
	p.text(pkg.Doc, 2)
	p.examples(pkg.Examples)
	p.values("Constants", pkg.Consts)
	p.values("Variables", pkg.Vars)
	if len(pkg.Funcs) > 0 {
		p.out.WriteString("## Functions\n\n")
	}
	for _, f := range pkg.Funcs {
		p.function(f, 3)
	}
	if len(pkg.Types) > 0 {
		p.out.WriteString("## Types\n\n")
	}
	for _, t := range pkg.Types {
		p.heading(3, "type "+t.Name, t.Name, t.Decl)
		p.anchors(t)
		p.code(t.Decl)
		p.text(t.Doc, 4)
		p.examples(t.Examples)
		p.values("", t.Consts)
		p.values("", t.Vars)
		for _, f := range slices.Concat(t.Funcs, t.Methods) {
			p.function(f, 4)
		}
	}
	return p.out.String()
}

// heading opens a section whose anchor is that of pkg.go.dev, with a link to the source.
func (p *page) heading(level int, title, anchor string, decl ast.Node) {
	at := p.fset.Position(decl.Pos())
	file := path.Join(strings.TrimPrefix(strings.TrimPrefix(p.pkg.ImportPath, p.module.path), "/"),
		filepath.Base(at.Filename))
	fmt.Fprintf(&p.out, "%s [%s](%s%s#L%d \"the source\") {#%s}\n\n", strings.Repeat("#", level), title, repository, file,
		at.Line, anchor)
}

func (p *page) function(f *doc.Func, level int) {
	title, anchor := "func "+f.Name, f.Name
	if f.Recv != "" {
		recv, _, _ := strings.Cut(strings.TrimPrefix(f.Recv, "*"), "[") // without type parameters
		anchor = recv + "." + f.Name
		title = anchor
	}
	p.heading(level, title, anchor, f.Decl)
	p.code(f.Decl)
	p.text(f.Doc, level+1)
	p.examples(f.Examples)
}

// values writes groups of constants or variables, below a title if there is one.
func (p *page) values(title string, groups []*doc.Value) {
	if len(groups) > 0 && title != "" {
		fmt.Fprintf(&p.out, "## %s\n\n", title)
	}
	for _, v := range groups {
		for _, name := range v.Names {
			p.anchor(name)
		}
		p.out.WriteString("\n\n")
		p.code(v.Decl)
		p.text(v.Doc, 4)
	}
}

// anchor makes a place that links lead to.
func (p *page) anchor(name string) {
	if ast.IsExported(name) {
		fmt.Fprintf(&p.out, `<a id="%s"></a>`, name)
	}
}

// anchors has one for each field of a struct and each method of an interface.
func (p *page) anchors(t *doc.Type) {
	ast.Inspect(t.Decl, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok {
			return true
		}
		for _, name := range field.Names {
			if ast.IsExported(name.Name) {
				fmt.Fprintf(&p.out, `<a id="%s.%s"></a>`, t.Name, name.Name)
			}
		}
		return false
	})
	p.out.WriteString("\n\n")
}

// code writes a declaration.
func (p *page) code(node any) {
	p.fenced("go", p.source(node))
}

func (p *page) fenced(language, text string) {
	fmt.Fprintf(&p.out, "```%s\n%s\n```\n\n", language, strings.TrimRight(text, "\n"))
}

func (p *page) source(node any) string {
	var b bytes.Buffer
	if err := format.Node(&b, p.fset, node); err != nil {
		return err.Error()
	}
	return b.String()
}

// text writes a comment; its headings have the level and those below.
func (p *page) text(text string, level int) {
	printer := p.pkg.Printer()
	printer.HeadingLevel = level
	printer.HeadingID = func(*comment.Heading) string { return "" }
	printer.DocLinkURL = p.link
	p.out.Write(printer.Markdown(p.pkg.Parser().Parse(text)))
	p.out.WriteString("\n")
}

// link is where a name in a comment leads to.
func (p *page) link(to *comment.DocLink) string {
	anchor := to.Name
	if to.Recv != "" {
		anchor = to.Recv + "." + to.Name
	}
	if anchor != "" {
		anchor = "#" + anchor
	}
	switch {
	case to.ImportPath == "":
		return anchor
	case p.packages[to.ImportPath] != nil:
		from := filepath.FromSlash(path.Dir(p.short(p.pkg.ImportPath)))
		if rel, err := filepath.Rel(from, filepath.FromSlash(p.short(to.ImportPath)+".md")); err == nil {
			return filepath.ToSlash(rel) + anchor
		}
	}
	return "https://pkg.go.dev/" + to.ImportPath + anchor
}

// examples writes examples as parts that a reader opens.
func (p *page) examples(all []*doc.Example) {
	for _, e := range all {
		var body strings.Builder
		fmt.Fprintf(&body, "```go\n%s\n```\n", p.program(e))
		if e.Output != "" {
			fmt.Fprintf(&body, "\nOutput:\n\n```text\n%s\n```\n", strings.TrimRight(e.Output, "\n"))
		}
		fmt.Fprintf(&p.out, "??? example \"%s\"\n\n", strings.TrimSpace("Example "+e.Suffix))
		if e.Doc != "" {
			body.WriteString("\n" + e.Doc)
		}
		for line := range strings.Lines(body.String()) {
			if strings.TrimSpace(line) != "" {
				p.out.WriteString("    ")
			}
			p.out.WriteString(line)
		}
		p.out.WriteString("\n")
	}
}

// program is the code of an example: the whole file where it stands for itself, else what is between the function's
// braces.
func (p *page) program(e *doc.Example) string {
	if _, whole := e.Code.(*ast.File); whole {
		return strings.TrimRight(p.source(e.Code), "\n")
	}
	text := p.source(&printer.CommentedNode{Node: e.Code, Comments: e.Comments})
	text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "{"), "}")
	if i := strings.LastIndex(text, "// Output:"); i >= 0 {
		text = text[:i]
	} else if i := strings.LastIndex(text, "// Unordered output:"); i >= 0 {
		text = text[:i]
	}
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "\t")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n\t ")
}
