package tensor

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/dtype"
)

// edge is how many entries are shown at each end of a long dimension, and longest how many elements are shown in full.
const (
	edge    = 3
	longest = 100
)

// String shows type, shape and elements, such as "float32[2 2] [[1 2] [3 4]]". Of many elements it shows the
// first and last, of a tensor on a device the place instead.
func (t *Tensor) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v%v ", t.dt, t.shape)
	if !t.OnHost() {
		return b.String() + "on " + t.Device()
	}
	t.show(&b, make([]int, 0, t.Dim()))
	return b.String()
}

func (t *Tensor) show(b *strings.Builder, index []int) {
	if len(index) == t.Dim() {
		showElement(b, t.Value(index...))
		return
	}
	b.WriteByte('[')
	n := t.shape[len(index)]
	for i := 0; i < n; i++ {
		if i > 0 {
			b.WriteByte(' ')
		}
		if i == edge && n > 2*edge && t.numel > longest {
			b.WriteString("... ")
			i = n - edge
		}
		t.show(b, append(index, i))
	}
	b.WriteByte(']')
}

func showElement(b *strings.Builder, v any) {
	switch v := v.(type) {
	case dtype.F16:
		fmt.Fprintf(b, "%.4g", v.Float32())
	case dtype.BF16:
		fmt.Fprintf(b, "%.4g", v.Float32())
	case dtype.F8E4M3FN:
		fmt.Fprintf(b, "%.4g", v.Float32())
	case dtype.F8E5M2:
		fmt.Fprintf(b, "%.4g", v.Float32())
	case float32, float64, complex64, complex128:
		fmt.Fprintf(b, "%.4g", v)
	default:
		fmt.Fprint(b, v)
	}
}
