package main

import (
	"fmt"
	"regexp"
	"strings"
)

// variable is a field of a struct or a parameter of a function; callee is what a pointer to a function points to.
type variable struct {
	name   string
	of     string // the type without const, as in "char **"
	callee *function
}

// function is one of the library's, or the type of one that it calls.
type function struct {
	name   string
	result string
	takes  []variable
}

// declaration is one type of the header; one of the fields is set.
type declaration struct {
	name     string
	alias    string // typedef of a number
	fields   []variable
	function *function
}

// declarations is what a header declares, in its order.
type declarations struct {
	values    [][2]string // constants and what they are, as Python would also say it
	types     []declaration
	functions []function
}

var (
	comment   = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	defined   = regexp.MustCompile(`(?m)^#define (CHORUS_\w+)[ \t]+(\S.*?)[ \t]*$`)
	condition = regexp.MustCompile(`(?m)^#.*$`)
	listed    = regexp.MustCompile(`(CHORUS_\w+) = (-?\d+),`)
	pointer   = regexp.MustCompile(`^(.*?)\(\*(\w+)\)\s*\((.*)\)$`)
	array     = regexp.MustCompile(`\[\d+\]$`)
	declared  = regexp.MustCompile(`^(.*?[\s*])(\w+)$`)
	spaces    = regexp.MustCompile(`\s+`)
)

// parse reads the declarations of a header of the kind that chorus.h is.
func parse(header string) (*declarations, error) {
	d := &declarations{}
	text := comment.ReplaceAllString(header, "")
	for _, m := range listed.FindAllStringSubmatch(text, -1) {
		d.values = append(d.values, [2]string{m[1], m[2]})
	}
	for _, m := range defined.FindAllStringSubmatch(text, -1) {
		d.values = append(d.values, [2]string{m[1], strings.Trim(m[2], "()")})
	}
	text = strings.ReplaceAll(condition.ReplaceAllString(text, ""), `extern "C" {`, "")
	for text = strings.TrimSpace(text); text != "" && text != "}"; text = strings.TrimSpace(text) {
		end := strings.IndexByte(text, ';')
		if open := strings.IndexByte(text, '{'); open >= 0 && open < end {
			end = open + strings.IndexByte(text[open:], '}')
			end += strings.IndexByte(text[end:], ';')
		}
		if end < 0 {
			return nil, fmt.Errorf("a declaration has no end: %.60q", text)
		}
		one := spaces.ReplaceAllString(text[:end], " ")
		if err := d.add(one); err != nil {
			return nil, fmt.Errorf("%q: %w", one, err)
		}
		text = text[end+1:]
	}
	return d, nil
}

// add takes one declaration in.
func (d *declarations) add(text string) error {
	if rest, ok := strings.CutPrefix(text, "CHORUS_API "); ok {
		open := strings.IndexByte(rest, '(')
		head, err := newVariable(rest[:open])
		if err != nil {
			return err
		}
		f, err := newFunction(head.name, head.of, strings.TrimSuffix(rest[open+1:], ")"))
		d.functions = append(d.functions, f)
		return err
	}
	rest, ok := strings.CutPrefix(text, "typedef ")
	switch {
	case strings.HasPrefix(text, "enum {"):
		return nil // its values are known
	case !ok:
		return fmt.Errorf("it's neither a type nor a function")
	case !strings.HasPrefix(rest, "struct "):
		v, err := newVariable(rest)
		d.types = append(d.types, declaration{name: v.name, alias: v.of, function: v.callee})
		return err
	}
	open, end := strings.IndexByte(rest, '{'), strings.IndexByte(rest, '}')
	if open < 0 {
		return nil // a struct of the library's own, that only pointers are given to
	}
	s := declaration{name: strings.TrimSpace(rest[end+1:])}
	for field := range strings.SplitSeq(rest[open+1:end], ";") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		names := []string{field}
		if !strings.ContainsRune(field, '(') { // int32_t a, b or char *a, *b
			names = strings.Split(field, ",")
		}
		first, err := newVariable(names[0])
		if err != nil {
			return err
		}
		s.fields = append(s.fields, first)
		for _, other := range names[1:] {
			s.fields = append(s.fields, variable{name: strings.TrimLeft(other, " *"), of: first.of})
		}
	}
	d.types = append(d.types, s)
	return nil
}

// newVariable reads a declarator, such as "const char *name", or "int (*check)(void)".
func newVariable(text string) (variable, error) {
	text = strings.TrimSpace(text)
	if m := pointer.FindStringSubmatch(text); m != nil {
		f, err := newFunction(m[2], plainType(m[1]), m[3])
		return variable{name: m[2], callee: &f}, err
	}
	if _, known := numbers[text]; known { // a parameter without a name
		return variable{of: text}, nil
	}
	many := array.MatchString(text)
	m := declared.FindStringSubmatch(array.ReplaceAllString(text, ""))
	if m == nil {
		return variable{}, fmt.Errorf("%q is no declaration", text)
	}
	v := variable{name: m[2], of: plainType(m[1])}
	if many {
		v.of += " *"
	}
	return v, nil
}

func newFunction(name, result, takes string) (function, error) {
	f := function{name: name, result: result}
	if strings.TrimSpace(takes) == "void" {
		return f, nil
	}
	for one := range strings.SplitSeq(takes, ",") {
		v, err := newVariable(one)
		if err != nil {
			return f, err
		}
		f.takes = append(f.takes, v)
	}
	return f, nil
}

// plainType writes a type without const and with one space before its stars.
func plainType(text string) string {
	text = strings.Join(strings.Fields(strings.ReplaceAll(strings.ReplaceAll(text, "*", " * "), "const ", "")), " ")
	return strings.ReplaceAll(text, "* *", "**")
}
