package kernel

import "github.com/chorus-comms/chorus/kernel/text"

// writer writes the text of a kernel. Each generator has its own methods.
type writer struct{ text.Writer }
