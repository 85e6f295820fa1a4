package accinte

import "github.com/chorus-comms/chorus/device/internal/engine"

// A Function is a kernel of a module: a Go function, which runs once for each block of a grid, one after the other. An
// error that it returns, a panic, and an access beyond the end of an allocation are failures of work.
type Function = engine.Function

// A Block is one block of a launch, as its kernel sees it: where it is in the grid, its shared memory, and the
// arguments by number, as the types that the parameters have.
type Block = engine.Block

// RegisterModule makes functions loadable as a module ([device.Device.LoadModule]) of emulated devices of this process;
// its image is the name. It panics if there is one of the name already, or a function can't run, and is meant for init
// functions:
//
//	accinte.RegisterModule("vectors", map[string]accinte.Function{
//		"scale": {Params: []device.ParamKind{device.ParamPointer, device.ParamFloat32}, Run: func(b *accinte.Block) error { ... }},
//	})
func RegisterModule(name string, functions map[string]Function) {
	engine.RegisterModule(name, functions)
}
