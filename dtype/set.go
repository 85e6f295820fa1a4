package dtype

// Set is types of elements, a bit each.
type Set uint32

// SetOf has these types.
func SetOf(types ...DType) (s Set) {
	for _, t := range types {
		s |= 1 << t
	}
	return s
}

// Has reports whether a type is among them.
func (s Set) Has(t DType) bool { return s>>t&1 != 0 }
