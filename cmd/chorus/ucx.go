//go:build ucx

package main

import (
	"github.com/chorus-comms/chorus/fabric/ucx"
)

// The tag makes the command one that is linked dynamically, and can open UCX.
func init() {
	askUCX = func() (resources []string, fast bool, err error) {
		d, err := ucx.Describe()
		for _, r := range d.Resources {
			resources = append(resources, r.String())
		}
		return resources, d.Fast(), err
	}
}
