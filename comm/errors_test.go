package comm_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// TestErrorsShowTheirFields compares what the documentation of each error says of its fields with its declaration.
func TestErrorsShowTheirFields(t *testing.T) {
	fields := func(s *ast.StructType) (all []string) {
		for _, f := range s.Fields.List {
			if len(f.Names) == 0 {
				all = append(all, types.ExprString(f.Type))
			}
			for _, name := range f.Names {
				all = append(all, name.Name+" "+types.ExprString(f.Type))
			}
		}
		return all
	}
	structs := func(path string, src any) map[string][]string {
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string][]string{}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					found[spec.Name.Name] = fields(s)
				}
			}
			return true
		})
		return found
	}
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string][]string{}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
			if _, block, ok := strings.Cut(g.Doc.Text(), "\n\n\ttype "); ok {
				for name, fields := range structs("", "package p\ntype "+block) {
					said[name] = fields
				}
			}
		}
	}
	for name, want := range structs("backend/errors.go", nil) {
		if !slices.Equal(said[name], want) {
			t.Errorf("the documentation of %s has the fields %q; it has %q", name, said[name], want)
		}
	}
}
