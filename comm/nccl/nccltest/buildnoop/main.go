// Command buildnoop builds the library whose calls return at once ([nccltest.BuildNoop]): buildnoop FILE [SONAME].
package main

import (
	"fmt"
	"os"

	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: buildnoop FILE [SONAME]")
		os.Exit(2)
	}
	if err := nccltest.BuildNoop(os.Args[1], append(os.Args, "")[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
