// Package emulatedtest builds the emulated GPU, whose sources are beside it, for tests that run on it in processes of
// their own.
//
//	libraries := emulatedtest.Build(t, "cuda")
//	cmd.Env = append(os.Environ(), emulatedtest.Environment(libraries)...)
//
// Its own tests are the driver's conformance on the emulated GPU.
package emulatedtest
