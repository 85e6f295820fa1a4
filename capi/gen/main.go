// Command gen writes chorus.h, the header of the C ABI: its text is chorus.h.tmpl,
// and its constants are those of the Go packages.
//
//	go run ./capi/gen > capi/chorus.h
package main

import (
	"fmt"
	"os"
)

func main() {
	text, err := header()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Stdout.Write(text)
}
