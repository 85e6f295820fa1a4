package kernel

import (
	"reflect"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/kernel/library"
	"github.com/chorus-comms/chorus/kernel/loader"
	"github.com/chorus-comms/chorus/kernel/text"
)

// A plan that's used again adds the calls that a new one does, whatever those before were.
func TestPlanAgain(t *testing.T) {
	s := text.Spec{Family: RowFamily, Block: threads}
	var used, fresh Plan
	*used.call(s, 1) = loader.Call{Spec: text.Spec{Op: "sum"}, Shape: loader.AnyTiles, Elements: 1, Work: 2, Tunable: true,
		MatrixUnit: true, Library: library.Work{Kind: library.GEMM}, Block: device.Dim{X: 1}}
	used.Reset()
	got, want := used.call(s, 1000), fresh.call(s, 1000)
	got.Args, want.Args = device.Args{}, device.Args{} // which keep their memory
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, and in a new plan %+v", got, want)
	}
}
