package fabric

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Driver is how a fabric is opened.
type Driver struct {
	// Open opens this rank's end. Every rank calls it.
	Open func(ctx context.Context, c Config) (Fabric, error)
	// Options returns the settings that the fabric has, to be checked only; nil: it passes them on, or has none.
	Options func() Options
}

var registry = struct {
	sync.RWMutex
	drivers map[string]Driver
}{drivers: map[string]Driver{}}

// Register makes a fabric available under a name. It panics if the name is taken.
func Register(name string, d Driver) {
	registry.Lock()
	defer registry.Unlock()
	if _, dup := registry.drivers[name]; dup {
		panic("fabric: Register called twice for " + name)
	}
	registry.drivers[name] = d
}

// Names returns the registered fabrics, sorted.
func Names() []string {
	registry.RLock()
	defer registry.RUnlock()
	return slices.Sorted(maps.Keys(registry.drivers))
}

// Lookup returns the driver of a fabric. A name that there isn't is a *[ConfigError].
func Lookup(name string) (Driver, error) {
	registry.RLock()
	d, ok := registry.drivers[name]
	registry.RUnlock()
	if !ok {
		return d, &ConfigError{fmt.Errorf("fabric: unknown fabric %q; have %v", name, Names())}
	}
	return d, nil
}

// Open opens the named fabric. A name or an option that there isn't is a *[ConfigError].
func Open(ctx context.Context, name string, c Config) (Fabric, error) {
	d, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	if c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size {
		return nil, fmt.Errorf("fabric: rank %d is not in a world of %d", c.Rank, c.Size)
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if d.Options != nil && len(c.Defaults) > 0 {
		all := d.Options().Of(c)
		maps.Copy(all, c.Options) // those that it doesn't know, too, for it to complain of
		c.Options, c.Defaults = all, nil
	}
	return d.Open(ctx, c)
}

// ConfigError reports a name or an option that there isn't, or whose value can't be: the caller's, not the network's.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }
