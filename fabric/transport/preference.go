package transport

import (
	"cmp"
	"slices"
	"sync"

	"github.com/chorus-comms/chorus/fabric"
)

// A Preference is a registered fabric that is faster than TCP between hosts, on the hardware that it's for. The fabric
// "auto" then takes it by itself if all ranks can use it.
type Preference struct {
	Name string
	// Look says why this rank can't use the fabric, or nil if it seems that it can. It's cheap: it loads no library, and
	// starts nothing.
	Look func(c fabric.Config) error
	// Listen makes an endpoint, as that of Register does, but fails unless the hardware is there after all.
	Listen Listen
}

var preferences sync.Map // Preference, by the fabric's name

// Prefer makes a fabric one that is preferred to TCP.
func Prefer(p Preference) { preferences.Store(p.Name, p) }

// Preferences returns the fabrics that are preferred to TCP, by name.
func Preferences() (all []Preference) {
	for _, p := range preferences.Range {
		all = append(all, p.(Preference))
	}
	slices.SortFunc(all, func(a, b Preference) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
