//go:build cgo

// Command library is libchorus.so with the driver of package mydriver in it.
//
//	PACKAGE=./mydevice/library sh CHORUS/capi/build.sh libmydevice.so
package main

import (
	_ "example.com/thirdparty/mydriver"
	_ "github.com/chorus-comms/chorus/capi"
)

// main is not called in a shared library.
func main() {}
