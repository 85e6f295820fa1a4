package dl

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Func is a function that takes and returns words: integers and pointers, no floating-point numbers and no structs.
// The caller keeps what pointers among them point to alive and in place ([Heap]) until the call has returned, as
// [syscall.Syscall] demands. The zero value is no function.
type Func uintptr

// maxWords is how many a function takes at most.
const maxWords = 32

// Call calls the function with up to 32 words, on the calling goroutine's thread. It allocates nothing.
func (f Func) Call(args ...uintptr) uintptr {
	switch {
	case f == 0:
		panic("dl: call of a function that the library lacks")
	case len(args) > maxWords:
		panic("dl: a call with more than 32 words")
	}
	return call(uintptr(f), args)
}

// direct makes functions of a type, by the type.
var direct = map[reflect.Type]func(f Func) reflect.Value{}

// Direct makes [Library.Resolve] implement the functions of a Go type by calls of a [Func]. That takes a tenth of the
// time of converting arguments of any type, and is for functions that are called often. It's called in an init
// function.
func Direct[F any](convert func(f Func) F) {
	direct[reflect.TypeFor[F]()] = func(f Func) reflect.Value { return reflect.ValueOf(convert(f)) }
}

// Callback makes f a function that a library can call with one word, from any thread. There can be some 2000 in a
// process, and none is ever given back.
func Callback(f func(arg uintptr)) Func { return Func(callback(f)) }

// Callback3 is Callback for a function of three words.
func Callback3(f func(a, b, c uintptr)) Func { return Func(callback3(f)) }

// Resolve fills a table: a pointer to a struct whose fields have tags.
//
//	dl:"name"           the symbol; with "a|b" the first that there is
//	cap:"capability"    the field is optional, and part of the capability; it stays zero where the symbol is missing
//	since:"version"     the first version that has the capability, for the texts of errors
//
// Fields without the tag dl stay as they are. The error is a [*SymbolError] that names all symbols that are missing.
// Resolve panics if the table isn't one, which is a bug of the program.
func (l *Library) Resolve(table any) (*Capabilities, error) {
	v := reflect.ValueOf(table)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("dl: Resolve(%T): not a pointer to a struct", table))
	}
	v = v.Elem()
	for i := range v.NumField() {
		if names, ok := v.Type().Field(i).Tag.Lookup("dl"); ok {
			if address, found := l.first(strings.Split(names, "|")); found {
				set(v.Field(i), v.Type().Field(i), address)
			}
		}
	}
	return l.found(v)
}

// Supplied is what [Library.Resolve] would return for a table that is filled by a stand-in in Go for example, which
// errors call name, of a version, at a place. Fields that are zero are missing.
func Supplied(name, version, place string, table any) (*Capabilities, error) {
	l := &Library{name: name, place: place, ask: func(*Library) (string, error) { return version, nil }}
	return l.found(reflect.ValueOf(table).Elem())
}

// found says what a table that has been filled can do.
func (l *Library) found(v reflect.Value) (*Capabilities, error) {
	caps := &Capabilities{library: l, all: map[string]*capability{}}
	var missing []string
	for i := range v.NumField() {
		field := v.Type().Field(i)
		names, ok := field.Tag.Lookup("dl")
		if !ok {
			continue
		}
		there := !v.Field(i).IsZero()
		if c, optional := field.Tag.Lookup("cap"); optional {
			caps.add(c, field.Tag.Get("since"), names, there)
		} else if !there {
			missing = append(missing, names)
		}
	}
	if missing != nil {
		return nil, &SymbolError{Library: l.name, Version: l.Version(), Path: l.Path(), Symbols: missing}
	}
	return caps, nil
}

func (l *Library) first(names []string) (uintptr, bool) {
	for _, name := range names {
		if a, ok := l.Symbol(name); ok {
			return a, true
		}
	}
	return 0, false
}

func set(v reflect.Value, field reflect.StructField, address uintptr) {
	switch {
	case !v.CanSet():
		panic(fmt.Sprintf("dl: field %s isn't exported", field.Name))
	case v.Type() == reflect.TypeFor[Func]():
		v.Set(reflect.ValueOf(Func(address)))
	case direct[v.Type()] != nil:
		v.Set(direct[v.Type()](Func(address)))
	case v.Kind() == reflect.Func:
		register(v.Addr().Interface(), address)
	default:
		panic(fmt.Sprintf("dl: field %s is a %v, neither a function nor a Func", field.Name, v.Type()))
	}
}

// SymbolError reports that a library lacks functions that the program can't do without.
type SymbolError struct {
	Library, Version, Path string
	Symbols                []string
}

func (e *SymbolError) Error() string {
	return fmt.Sprintf("%s %s (%s) lacks %s", e.Library, e.Version, e.Path, strings.Join(e.Symbols, ", "))
}

// Capabilities are what a library can do beyond the functions that every version has.
type Capabilities struct {
	library *Library
	all     map[string]*capability
}

type capability struct {
	since   string
	missing []string
}

func (c *Capabilities) add(name, since, symbol string, found bool) {
	x := c.all[name]
	if x == nil {
		x = &capability{}
		c.all[name] = x
	}
	if since != "" {
		x.since = since
	}
	if !found {
		x.missing = append(x.missing, symbol)
	}
}

// Has reports whether all functions of a capability are there. It panics if the table has no such capability.
func (c *Capabilities) Has(name string) bool { return len(c.of(name).missing) == 0 }

// Need returns a [*CapabilityError] unless the library has the capability. It panics if the table has no such
// capability.
func (c *Capabilities) Need(name string) error {
	x := c.of(name)
	if len(x.missing) == 0 {
		return nil
	}
	return &CapabilityError{Library: c.library.name, Version: c.library.Version(), Path: c.library.Path(),
		Capability: name, Since: x.since, Symbols: slices.Clone(x.missing)}
}

// List returns the names of the capabilities that the library has, and of those that it lacks, sorted.
func (c *Capabilities) List() (has, lacks []string) {
	for name, x := range c.all {
		if len(x.missing) == 0 {
			has = append(has, name)
		} else {
			lacks = append(lacks, name)
		}
	}
	slices.Sort(has)
	slices.Sort(lacks)
	return has, lacks
}

func (c *Capabilities) of(name string) *capability {
	x := c.all[name]
	if x == nil {
		panic(fmt.Sprintf("dl: the table of %s has no capability %q", c.library.name, name))
	}
	return x
}

// CapabilityError reports that a library lacks the functions of a capability that was asked for.
type CapabilityError struct {
	Library, Version, Path string
	Capability             string
	Since                  string // the first version that has it; empty if the table doesn't say
	Symbols                []string
}

func (e *CapabilityError) Error() string {
	s := fmt.Sprintf("%s %s (%s) has no %s: it lacks %s", e.Library, e.Version, e.Path, e.Capability,
		strings.Join(e.Symbols, ", "))
	if e.Since != "" {
		s += fmt.Sprintf(", which came with %s %s", e.Library, e.Since)
	}
	return s
}
