package calibration_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/plan/calibration"
)

// The example saves costs, as `chorus bench --calibrate` does, and loads them, as a program does
// that chooses algorithms by itself.
func Example() {
	dir, err := os.MkdirTemp("", "calibration")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "calibration.json") // or calibration.Path("on")

	m := plan.DefaultMachine()
	m.Copy = 20e9 // measured: bytes per second
	err = calibration.Store(path, calibration.Entry{Ranks: 2, Date: "2026-11-21T12:00:00Z", Placement: "near",
		Measured: []string{"copy_bytes_per_s"}, Machine: m})
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := calibration.Lookup(path, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := plan.Select(plan.Request{Collective: plan.AllReduce, World: 2, Count: 1 << 20, ElemSize: 4}, e.Machine,
		"ring", nil)
	fmt.Println(e.Machine.Copy, a.Name, err)
	// Output: 2e+10 ring <nil>
}
