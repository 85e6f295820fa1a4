package abi

import (
	"fmt"

	"github.com/chorus-comms/chorus/dtype"
)

// DataType is the type of a buffer's elements.
type DataType uint32

// The types. Int8 is for data that is moved and not combined.
const (
	None DataType = iota
	Int8
	Float16
	Float32
	Float64
	Int32
	Int64
	dataTypes
)

var elements = [dataTypes]dtype.DType{Int8: dtype.Int8, Float16: dtype.Float16, Float32: dtype.Float32,
	Float64: dtype.Float64, Int32: dtype.Int32, Int64: dtype.Int64}

// DType returns the type as the rest of the module knows it; Invalid for None and what is no type.
func (t DataType) DType() dtype.DType {
	if t < dataTypes {
		return elements[t]
	}
	return dtype.Invalid
}

// DataTypeOf is the other way round: None if the engine doesn't have the type.
func DataTypeOf(d dtype.DType) DataType {
	for t := Int8; t < dataTypes; t++ {
		if elements[t] == d {
			return t
		}
	}
	return None
}

// Size returns the bytes of an element; 0 for None.
func (t DataType) Size() int {
	if d := t.DType(); d.Valid() {
		return d.Size()
	}
	return 0
}

func (t DataType) String() string {
	switch {
	case t == None:
		return "none"
	case t < dataTypes:
		return elements[t].String()
	}
	return fmt.Sprintf("datatype(%d)", uint32(t))
}
