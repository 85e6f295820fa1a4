// Command build builds the library of package atonce: build FILE [SONAME].
package main

import (
	"fmt"
	"os"

	"github.com/chorus-comms/chorus/internal/atonce"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: build FILE [SONAME]")
		os.Exit(2)
	}
	if err := atonce.Build(os.Args[1], append(os.Args, "")[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
