//go:build steps

package record

import "github.com/chorus-comms/chorus/internal/sys"

// steps has the owner stop after each store, too, until the function that it returns is called.
func steps(stop func()) func() {
	sys.Stepped = stop
	return func() { sys.Stepped = nil }
}
