package fabric

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Options are the settings that a fabric has: by name, what takes a value or says why it can't be.
type Options map[string]func(value string) error

// Set takes the values given for the options of a fabric. Each that can't be taken is a *[ConfigError].
func (o Options) Set(fabric string, given map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		take := o[name]
		if take == nil {
			take = o.unknown
		}
		if err := take(given[name]); err != nil {
			errs = append(errs, &ConfigError{fmt.Errorf("%s: option fabric.%s=%q: %w", fabric, name, given[name], err)})
		}
	}
	return errors.Join(errs...)
}

func (o Options) unknown(string) error {
	if len(o) == 0 {
		return errors.New("unknown; there are none")
	}
	return fmt.Errorf("unknown; known are %s", strings.Join(slices.Sorted(maps.Keys(o)), ", "))
}

// Of returns the values of a configuration, its defaults among them, for the options that are among these.
func (o Options) Of(c Config) map[string]string {
	mine := map[string]string{}
	for _, given := range []map[string]string{c.Defaults, c.Options} {
		for name, v := range given {
			if o[name] != nil {
				mine[name] = v
			}
		}
	}
	return mine
}

// OneOf is an option with a few values.
func OneOf(field *string, values ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(values, strings.ToLower(v)) {
			return fmt.Errorf("it can be %s", strings.Join(values, ", "))
		}
		*field = strings.ToLower(v)
		return nil
	}
}

// Number is an option with a number within bounds.
func Number(field *int, low, high int) func(string) error {
	return func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("want a number from %d to %d", low, high)
		}
		*field = n
		return nil
	}
}
