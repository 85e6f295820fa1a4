package kernel

import "strings"

// float8Ops convert to and from numbers of 8 bits, whose bits are uint8 in memory.
var float8Ops = func() (all []Op) {
	for _, name := range []string{"e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"} {
		all = append(all, only("to_f8"+name, 1, 0, "(T)to_f8"+name+"((f32)a)"),
			only("from_f8"+name, 1, 0, "(T)from_f8"+name+"((u8)a)"))
	}
	return all
}()

// float8 writes the functions of such an operation.
func (w *writer) float8(op string) {
	if strings.Contains(op, "_f8") {
		w.WriteString(float8Header)
	}
}
