package dtype

// Element is any Go type that an element of a tensor can have. There is one for every [DType].
type Element interface {
	bool | uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 |
		F16 | BF16 | F8E4M3FN | F8E5M2 | float32 | float64 | complex64 | complex128
}

// Of returns the DType of the Go type T.
func Of[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case bool:
		return Bool
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case F16:
		return Float16
	case BF16:
		return BFloat16
	case F8E4M3FN:
		return Float8E4M3FN
	case F8E5M2:
		return Float8E5M2
	case float32:
		return Float32
	case float64:
		return Float64
	case complex64:
		return Complex64
	default:
		return Complex128
	}
}
