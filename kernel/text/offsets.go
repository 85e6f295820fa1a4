package text

// LayoutType writes the type of sizes and strides, which a call fills.
func (w *Writer) LayoutType(name string, dims, operands int) {
	if dims > 0 {
		w.Line("typedef struct { I sizes[%d], strides[%d][%d]; } %s;", dims, operands, dims, name)
	}
}

// Offsets is what [Writer.OffsetsFrom] writes.
func Offsets(i, layout string, first, dims, operands int) string {
	var w Writer
	w.OffsetsFrom(i, layout, first, dims, operands)
	return w.String()
}

// Offsets writes the place of element number i of each operand as at0, at1 and so on, without a division for the
// outermost dimension.
func (w *Writer) Offsets(i, layout string, dims, operands int) {
	w.OffsetsFrom(i, layout, 0, dims, operands)
}

// OffsetsFrom is Offsets with the first dimensions left out.
func (w *Writer) OffsetsFrom(i, layout string, first, dims, operands int) {
	for o := range operands {
		if dims == 0 {
			w.Line("\tI at%d = %s;", o, i)
		} else {
			w.Line("\tI at%d = 0;", o)
		}
	}
	if dims <= first {
		return
	}
	w.Line("\t{")
	w.Line("\t\tI rest = %s, k, up;", i)
	for k := first; k < dims; k++ {
		if k < dims-1 {
			unsigned := "u32"
			w.Line("\t\tup = sizeof(I) == 8 ? rest / %s.sizes[%d] : (I)((%s)rest / (%s)%s.sizes[%d]);", layout, k, unsigned,
				unsigned, layout, k)
			w.Line("\t\tk = rest - up * %s.sizes[%d];", layout, k)
			w.Line("\t\trest = up;")
		} else {
			w.Line("\t\tk = rest;")
		}
		for o := range operands {
			w.Line("\t\tat%d += k * %s.strides[%d][%d];", o, layout, o, k)
		}
	}
	w.Line("\t}")
}
