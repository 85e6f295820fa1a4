//go:build cgo

package capi

// #include "shim.h"
import "C"

import "github.com/chorus-comms/chorus/observe/record"

//export goSite
func goSite(file *C.char, line C.int32_t, function *C.char) (site C.uint32_t) {
	var status C.chorus_status
	defer contain(&status)
	return C.uint32_t(record.Site(record.Frame{Name: text(function, ""), File: text(file, ""), Line: int(line)}))
}

//export goRaised
func goRaised(what, file *C.char, line C.int32_t, function *C.char) (status C.chorus_status) {
	defer contain(&status)
	record.Raise(record.Raised{What: text(what, ""), At: record.Frame{Name: text(function, ""), File: text(file, ""),
		Line: int(line)}})
	return C.CHORUS_OK
}
