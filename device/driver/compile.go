package driver

// Speaker is implemented by drivers with [Modules] whose ModuleLoad takes sources in the language of another driver.
// Their devices have the kernels of package kernel, and those that torch.compile generates.
type Speaker interface {
	// ModuleLanguage is "cuda", "hip" or "opencl".
	ModuleLanguage() string
}

// Compiler is implemented by drivers with [Modules] whose compiler gives what it makes of a source, so that a program
// can keep it.
type Compiler interface {
	// ModuleCompiler names the compiler, its version, and the model of device that it compiles for: an image serves
	// where all three are the same.
	ModuleCompiler(dev int) (string, error)

	// ModuleCompile makes an image of a source, which ModuleLoad takes.
	ModuleCompile(dev int, source []byte) (image []byte, err error)
}
