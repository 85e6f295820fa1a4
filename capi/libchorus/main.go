//go:build cgo

// Command libchorus is libchorus.so: built by capi/build.sh, it's package capi, and a pthread_create of its own.
package main

import "C" // for monitor.c

import _ "github.com/chorus-comms/chorus/capi"

// main is not called in a shared library.
func main() {}
