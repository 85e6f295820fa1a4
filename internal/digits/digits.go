// Package digits holds 1,797 images of handwritten digits, for programs that
// shall train on something real.
//
//	set, err := digits.Load()
//	pixels := set.Image(i)   // 64 bytes, 0 (white) to 16 (black), row by row
//	digit := set.Label(i)    // 0 to 9
//
// Source, licence (CC BY 4.0) and what was changed stand in README.md beside the data.
//
// A Set is not changed after Load; any number of goroutines may read it.
package digits

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
)

// The shape of the data.
const (
	Count   = 1797
	Side    = 8
	Pixels  = Side * Side
	Classes = 10
	Black   = 16 // the largest value of a pixel
)

// record is an image with its label.
const record = Pixels + 1

//go:embed digits.gz
var packed []byte

// Set is all images with their labels.
type Set struct{ records []byte }

// Load unpacks the images.
func Load() (*Set, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("digits: %w", err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("digits: %w", err)
	}
	if len(data) != Count*record {
		return nil, fmt.Errorf("digits: %d bytes, want %d", len(data), Count*record)
	}
	return &Set{data}, nil
}

// Image returns the pixels of image i; don't write them.
func (s *Set) Image(i int) []byte { return s.records[i*record:][:Pixels:Pixels] }

// Label returns the digit that image i shows.
func (s *Set) Label(i int) int { return int(s.records[i*record+Pixels]) }
