package gpu

import (
	"sync"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/dl"
)

// companion is a library beside the GPU's driver, cuBLAS for example, with its table of functions. It's opened when it's
// first asked for.
type companion[T any] struct {
	name     string                      // in errors
	variable string                      // may name its files
	files    func(*config.Config) string // the variable's value
	places   []string                    // of its files if the variable is empty
	off      func(*config.Config) error  // nil, or why the library isn't used, wherever it is
	accepts  func(*dl.Library) error     // nil, or why a file that has the name isn't the library
	rest     func(*dl.Library) error     // nil, or it looks for further functions

	once  sync.Once
	table T
	caps  *dl.Capabilities
	place string
	err   error // why there is none
}

// open opens the library: of the files of its variable the first that is one, or what the machine has.
func (x *companion[T]) open() error {
	x.once.Do(func() {
		c, err := x.settings()
		if err == nil {
			err = dl.Named(x.variable, x.files(c), x.places, x.from)
		}
		x.err = err
	})
	return x.err
}

// settings are the process's; the error says that the library isn't to be used.
func (x *companion[T]) settings() (*config.Config, error) {
	c, err := config.Load(nil)
	if err == nil && x.off != nil {
		err = x.off(c)
	}
	return c, err
}

func (x *companion[T]) from(places []string) error {
	lib, err := dl.Source{Name: x.name, Candidates: places}.Open()
	if err != nil {
		return err
	}
	if x.accepts != nil {
		if err := x.accepts(lib); err != nil {
			return err
		}
	}
	x.place = lib.Path()
	if x.caps, err = lib.Resolve(&x.table); err == nil && x.rest != nil {
		err = x.rest(lib)
	}
	return err
}

// supply takes a table that the caller has filled instead.
func (x *companion[T]) supply(place string, table T) (err error) {
	x.table, x.place = table, place
	x.caps, err = dl.Supplied(x.name, "unknown", place, &x.table)
	x.once.Do(func() {
		if x.off != nil {
			_, x.err = x.settings()
		}
	})
	return err
}

// title names the library, with its file.
func (x *companion[T]) title() string { return x.name + " (" + x.place + ")" }
