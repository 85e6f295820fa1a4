package dl

import (
	"fmt"
	"path/filepath"
)

// Named opens a library that a variable may name: of the files of its value the first that open takes, or one of places
// if it's empty. "none" is an error.
func Named(variable, files string, places []string, open func(places []string) error) (err error) {
	switch files {
	case "":
		return open(places)
	case "none":
		return fmt.Errorf("%s is none", variable)
	}
	for _, file := range filepath.SplitList(files) {
		if err = open([]string{file}); err == nil {
			return nil
		}
	}
	return err
}
